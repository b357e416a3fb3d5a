package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/zmtp"
)

// contender is a router with one prefill and one decode engine of its own, or the
// client itself doing both legs (direct).
type contender struct {
	name            string
	host            string // where requests go
	prefill         string // direct: where the first leg goes
	engines         [2]*engine
	command         *exec.Cmd
	ended           chan struct{}
	endRegistration context.CancelFunc
}

// direct is the router that costs nothing: the client does both legs.
func direct() (*contender, error) {
	c := &contender{name: "direct"}
	if err := c.addEngines(); err != nil {
		return nil, err
	}
	c.prefill, c.host = c.engines[0].address, c.engines[1].address
	return c, nil
}

// own says that it is PDPool's router, or none.
func (c *contender) own() bool { return c.name == "direct" || c.name == "pdpool" }

func (c *contender) addEngines() (err error) {
	for i, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		if c.engines[i], err = newEngine(role); err != nil {
			return err
		}
	}
	return nil
}

// launch is how a router is started: its arguments, and what is done once it answers.
type launch struct {
	name     string
	program  string
	mode     kvlayout.Mode // of the registrations that it gets; "": none
	args     func(c *contender, ports ports) ([]string, error)
	register func(c *contender) error
}

// ports are free ones for a router.
type ports struct{ http, metrics, registrations int }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// start brings a router up, until a request is answered.
func (l launch) start(ctx context.Context, logs string) (*contender, error) {
	c := &contender{name: l.name, ended: make(chan struct{})}
	if err := c.addEngines(); err != nil {
		return nil, err
	}
	var p ports
	for _, to := range []*int{&p.http, &p.metrics, &p.registrations} {
		var err error
		if *to, err = freePort(); err != nil {
			return nil, err
		}
	}
	c.host = net.JoinHostPort("127.0.0.1", strconv.Itoa(p.http))
	args, err := l.args(c, p)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(logs, l.name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own
	c.command = exec.CommandContext(ctx, l.program, args...)
	c.command.Stdout, c.command.Stderr = log, log
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	go func() { c.command.Wait(); close(c.ended) }() //nolint:errcheck // it is told by ended
	if l.mode != "" {
		var registered context.Context
		registered, c.endRegistration = context.WithCancel(ctx)
		for _, e := range c.engines {
			go c.beat(registered, e, l.mode, p.registrations)
		}
	}
	if err := c.answers(l); err != nil {
		c.stop()
		return nil, fmt.Errorf("%w (its words are in %s)", err, log.Name())
	}
	return c, nil
}

// answers waits until the router serves a request.
func (c *contender) answers(l launch) error {
	registered := l.register == nil
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		select {
		case <-c.ended:
			return fmt.Errorf("%s has ended at once", c.name)
		case <-time.After(100 * time.Millisecond):
		}
		if !registered {
			if code, err := ask("http://" + c.host + "/health"); err != nil || code >= 500 {
				continue
			}
			if err := l.register(c); err != nil {
				return err
			}
			registered = true
		}
		once := client{host: c.host}
		status, err := once.do(post(c.host, `{"model":"m","prompt":"warm","max_tokens":2}`), false)
		once.close()
		if err == nil && status == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("%s serves nothing within 30 s", c.name)
}

var web = http.Client{Timeout: 5 * time.Second}

func ask(url string) (int, error) {
	r, err := web.Get(url) //nolint:noctx // bounded by the client
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	r.Body.Close() //nolint:errcheck // it was read
	return r.StatusCode, err
}

// beat registers an engine as MoRIIO does, again every 3 s.
func (c *contender) beat(ctx context.Context, e *engine, mode kvlayout.Mode, port int) {
	m := moriio.Registration{
		Role: e.role, HTTPAddress: e.address, ZMQAddress: fmt.Sprintf("127.0.0.1:%d,%d", e.handshake, e.notify),
		DPSize: 1, TPSize: 1, TransferMode: mode,
	}
	for ctx.Err() == nil {
		pause := 3 * time.Second
		if c.register(ctx, &m, port) != nil {
			pause = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (c *contender) register(ctx context.Context, m *moriio.Registration, port int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	d, err := zmtp.Dial(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), zmtp.Options{})
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // always nil
	return d.Send(ctx, m.Append(nil))
}

// stop ends the router and all that it started.
func (c *contender) stop() {
	if c.endRegistration != nil {
		c.endRegistration()
	}
	if c.command != nil {
		syscall.Kill(-c.command.Process.Pid, syscall.SIGTERM) //nolint:errcheck // it may have ended
		select {
		case <-c.ended:
		case <-time.After(3 * time.Second):
			syscall.Kill(-c.command.Process.Pid, syscall.SIGKILL) //nolint:errcheck // likewise
			<-c.ended
		}
	}
	for _, e := range c.engines {
		if e != nil {
			e.server.Close() //nolint:errcheck // nobody listens any more
		}
	}
}

// group are the processes that a router consists of.
func (c *contender) group() (out []string) {
	if c.command == nil {
		return nil
	}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		if f := stat(path); len(f) > 20 && f[2] == strconv.Itoa(c.command.Process.Pid) {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}

// stat are the fields of a process after its name; [2] is its group.
func stat(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.Fields(rest)
}

// cpu is user and system time in seconds, in ticks of 10 ms.
func (c *contender) cpu() (seconds float64) {
	for _, dir := range c.group() {
		if f := stat(filepath.Join(dir, "stat")); len(f) > 12 {
			for _, ticks := range f[11:13] {
				n, _ := strconv.ParseFloat(ticks, 64)
				seconds += n / 100
			}
		}
	}
	return seconds
}

// rss is resident memory in MiB.
func (c *contender) rss() (mib float64) {
	for _, dir := range c.group() {
		if f := stat(filepath.Join(dir, "stat")); len(f) > 21 {
			pages, _ := strconv.ParseFloat(f[21], 64)
			mib += pages * float64(os.Getpagesize()) / (1 << 20)
		}
	}
	return mib
}
