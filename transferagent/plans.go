package transferagent

import (
	"slices"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/session"
)

// flowKey names one flow of one peer.
type flowKey struct {
	peer                                   session.Peer
	transfer                               string
	writerDP, writerTP, readerDP, readerTP int
}

func keyOf(o *session.CopyOrder) flowKey {
	return flowKey{o.Peer, o.Transfer, o.WriterDP, o.WriterTP, o.ReaderDP, o.ReaderTP}
}

// plan is a list of copies that orders of one flow share. The copies never change;
// users is for turns of the loop only.
type plan struct {
	copies []kvlayout.Copy
	users  int
}

// packed is an order that waits: its copies are those of a plan, moved. The layers of
// a memory usually differ in nothing but where they begin, and a prompt has as many
// lists of copies as the model has layers; kept one by one, those of a few long
// prompts would fill the container.
type packed struct {
	order          session.CopyOrder // without Copies, and the Address, which the courier has
	plan           *plan
	source, target int64
	at             time.Time // posted
}

// pack puts an order's copies away, with those of the flow's other orders if they fit.
func (l *loop) pack(o session.CopyOrder) packed {
	key := keyOf(&o)
	p := packed{plan: l.plans[key], at: time.Now()}
	fits := false
	if p.plan != nil {
		p.source, p.target, fits = shift(p.plan.copies, o.Copies)
	}
	if !fits {
		// The orders that have the last plan keep it.
		p.plan, p.source, p.target = &plan{copies: slices.Clone(o.Copies)}, 0, 0
		l.plans[key] = p.plan
	}
	p.plan.users++
	o.Copies, o.Address = nil, nil
	p.order = o
	return p
}

// shift says by how much the copies of a have to be moved to be those of b, false when
// that can't be.
func shift(a, b []kvlayout.Copy) (source, target int64, ok bool) {
	if len(a) != len(b) || len(a) == 0 {
		return 0, 0, len(a) == len(b)
	}
	source, target = b[0].Src-a[0].Src, b[0].Dst-a[0].Dst
	for i, c := range a {
		c.Src += source
		c.Dst += target
		if c != b[i] {
			return 0, 0, false
		}
	}
	return source, target, true
}

// open is the order with its copies.
func (p packed) open() session.CopyOrder {
	o := p.order
	o.Copies = slices.Clone(p.plan.copies)
	for i := range o.Copies {
		o.Copies[i].Src += p.source
		o.Copies[i].Dst += p.target
	}
	return o
}

// unpack gives the plan of an order that was answered back.
func (l *loop) unpack(p packed) {
	if p.plan.users--; p.plan.users > 0 {
		return
	}
	if key := keyOf(&p.order); l.plans[key] == p.plan {
		delete(l.plans, key)
	}
}
