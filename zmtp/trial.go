package zmtp

import (
	"container/list"
	"net/netip"
	"slices"
	"time"
)

// Trial bounds the connections of a Router that its owner has not called Prove for
// yet. They have places of their own, so that strangers take none of those of proved
// peers, and the oldest makes room for a new one: whoever proves itself before that
// many others have come is in.
type Trial struct {
	Connections int           // at a time; 512
	PerHost     int           // from one IP address; 256
	Message     int           // bytes of a message; 4 KiB
	Within      time.Duration // from the connection to Prove; 5 s
}

func (t Trial) withDefaults() *Trial {
	setDefault(&t.Connections, 512)
	setDefault(&t.PerHost, 256)
	setDefault(&t.Message, 4<<10)
	setDefault(&t.Within, 5*time.Second)
	return &t
}

// trial is a connection's time before Prove. The list of its Router owns it.
type trial struct {
	limits *Trial
	until  time.Time
	place  *list.Element // of *conn; nil once proved or put out; under the Router's mutex
}

// probation begins the trial of a connection of a Router with Options.Trial.
func (c *conn) probation() {
	if c.o.Trial != nil {
		c.trial = &trial{limits: c.o.Trial, until: time.Now().Add(c.o.Trial.Within)}
	}
}

// sooner is the earlier of a limit, zero meaning none, and the end of the trial.
func (c *conn) sooner(limit time.Time) time.Time {
	if c.trial != nil && (limit.IsZero() || c.trial.until.Before(limit)) {
		return c.trial.until
	}
	return limit
}

// overdue says that the trial's time has passed.
func (c *conn) overdue() bool { return c.trial != nil && !time.Now().Before(c.trial.until) }

// sizes are the limits of a frame and of a message now.
func (c *conn) sizes() (frame, message int) {
	if c.trial != nil {
		return min(c.o.MaxFrame, c.trial.limits.Message), min(c.o.MaxMessage, c.trial.limits.Message)
	}
	return c.o.MaxFrame, c.o.MaxMessage
}

// seat gives a connection its place on trial; those that make room for it are
// returned, to be closed. The caller holds the Router's mutex.
func (r *Router) seat(c *conn, host netip.Addr) (out []*conn) {
	limits := c.trial.limits
	if r.onTrial[host] >= limits.PerHost {
		for e := r.trials.Front(); e != nil; e = e.Next() {
			if old := e.Value.(*conn); r.open[old] == host {
				out = append(out, old)
				r.unseat(old, host)
				break
			}
		}
	}
	if e := r.trials.Front(); r.trials.Len() >= limits.Connections {
		old := e.Value.(*conn)
		out = append(out, old)
		r.unseat(old, r.open[old])
	}
	c.trial.place = r.trials.PushBack(c)
	r.onTrial[host]++
	return out
}

// unseat takes a connection's place on trial away, if it has one. The caller holds
// the Router's mutex.
func (r *Router) unseat(c *conn, host netip.Addr) {
	if c.trial == nil || c.trial.place == nil {
		return
	}
	r.trials.Remove(c.trial.place)
	c.trial.place = nil
	if r.onTrial[host]--; r.onTrial[host] == 0 {
		delete(r.onTrial, host)
	}
}

// member is who connections are proved to be of: what they call themselves, unless that
// is nothing, at one address. So nobody elsewhere takes the places of a name.
type member struct {
	host netip.Addr
	name string
}

// Prove ends the trial of a connection, see Options.Trial: from here on it is held to
// the limits of a proved peer. Name, when not empty, is the member that it is proved to
// be of; beyond Options.MaxPerMember the oldest connection of the same one ends. Only
// the Handler may call it, while it has a message of this peer. When no place is left
// the connection ends.
func (p *Peer) Prove(name string) {
	if p.conn.trial == nil {
		return
	}
	old, err := p.router.promote(p.conn, name)
	if old != nil {
		old.close(errorf(TooManyOfMember, "newer connections of %.64q are open", name))
	}
	if err != nil {
		p.conn.close(err)
	}
}

// promote gives a connection on trial the place of a proved one. The one that made room
// for it is returned, to be closed.
func (r *Router) promote(c *conn, name string) (old *conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.trial.place == nil {
		return nil, errorf(MadeRoom, "its place was given away")
	}
	m := member{r.open[c], name}
	if same := r.members[m]; r.o.MaxPerMember > 0 && len(same) >= r.o.MaxPerMember {
		old = same[0]
		r.leave(old)
	}
	if err := r.full(m.host); err != nil {
		return old, err
	}
	r.unseat(c, m.host)
	r.settle(c, m)
	c.trial = nil
	return old, nil
}

// settle gives a connection a place of the proved ones. The caller holds the Router's mutex.
func (r *Router) settle(c *conn, m member) {
	r.proved[c] = m
	r.hosts[m.host]++
	if m.name != "" {
		r.members[m] = append(r.members[m], c)
	}
}

// leave takes the place of a proved connection away, if it has one. The caller holds the
// Router's mutex.
func (r *Router) leave(c *conn) {
	m, ok := r.proved[c]
	if !ok {
		return
	}
	delete(r.proved, c)
	if r.hosts[m.host]--; r.hosts[m.host] == 0 {
		delete(r.hosts, m.host)
	}
	if m.name == "" {
		return
	}
	same := slices.DeleteFunc(r.members[m], func(o *conn) bool { return o == c })
	if len(same) == 0 {
		delete(r.members, m)
		return
	}
	r.members[m] = same
}

// full says that a proved peer of host has no place. The caller holds the Router's mutex.
func (r *Router) full(host netip.Addr) error {
	switch {
	case len(r.proved) >= r.o.MaxConnections:
		return errorf(TooMany, "%d connections are open", len(r.proved))
	case r.hosts[host] >= r.o.MaxPerHost:
		return errorf(TooManyFromHost, "%d connections from %s are open", r.hosts[host], host)
	}
	return nil
}
