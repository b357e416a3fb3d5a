package transferagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// kvSocket is the engine's door: the unix listener and the goroutines of its
// connections.
type kvSocket struct {
	cfg      *agentconfig.Config
	log      *slog.Logger
	loop     *loop
	metrics  *metrics
	mover    transport.Mover
	epoch    uint64
	listener *net.UnixListener
	claims   memory.Claims
	ids      memoryIDs
	places   chan struct{} // one per connection that may be open

	strangers noisy
	group     sync.WaitGroup
}

// reasonSlow counts connections that were ended because the engine did not read.
const reasonSlow = "slow-reader"

// listenKV binds the socket. A socket that no process listens on is removed first,
// and nothing else.
func listenKV(ctx context.Context, path string) (*net.UnixListener, error) {
	l, err := bindKV(path)
	if errors.Is(err, unix.EADDRINUSE) {
		if err := removeStale(ctx, path); err != nil {
			return nil, fmt.Errorf("KV socket %s: %w", path, err)
		}
		l, err = bindKV(path)
	}
	if err != nil {
		return nil, fmt.Errorf("KV socket: %w", err)
	}
	return l, nil
}

// removeStale removes a socket whose process has ended: it refuses connections.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("a %v is in its place", info.Mode())
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process listens on it"), c.Close())
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("another process may listen on it: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the stale one: %w", err)
	}
	return nil
}

func bindKV(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serve accepts connections until ctx ends, then waits for theirs to end.
func (k *kvSocket) serve(ctx context.Context) error {
	defer k.group.Wait()
	stop := context.AfterFunc(ctx, func() { k.listener.Close() }) //nolint:errcheck // Accept tells
	defer stop()
	for {
		conn, err := k.listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("KV socket: %w", err)
		case err != nil:
			// Out of descriptors, say: what is connected goes on.
			k.log.Error("KV socket can't accept", "error", err)
			pause(ctx, time.Second)
			continue
		}
		select {
		case k.places <- struct{}{}:
			k.group.Go(func() {
				defer func() { <-k.places }()
				k.handle(ctx, conn)
			})
		default:
			k.metrics.drop(portKV, "too-many")
			conn.Close() //nolint:errcheck // nothing was said on it
		}
	}
}

// handle serves one connection to its end, with all that came with it.
func (k *kvSocket) handle(ctx context.Context, conn *net.UnixConn) {
	ctx, shut := context.WithCancelCause(ctx)
	defer shut(nil)
	stop := context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // the reader tells
	defer stop()
	defer conn.Close() //nolint:errcheck // the reader tells
	c := kvconn.New(conn)
	hello, err := k.greet(c)
	if err != nil {
		k.turnAway(conn, c, err)
		return
	}
	s := &slot{
		who:   session.Conn{Kind: hello.Connection, DP: hello.DP, TP: hello.TP},
		hello: hello, out: newQueue[word](kvQueue), shut: shut, freed: make(chan struct{}),
	}
	if err := k.attach(ctx, s); err != nil {
		k.turnAway(conn, c, err)
		return
	}
	k.log.Info("engine connected", "connection", name(s.who), "process", credentials(conn))
	var writing sync.WaitGroup
	writing.Go(func() { k.write(ctx, c, s) })
	r := &reader{k: k, s: s, c: c}
	err = r.read(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, errSlowEngine) {
		k.metrics.drop(portKV, reasonSlow)
	}
	k.loop.do(func(context.Context) { k.loop.detach(s, err) })
	shut(err)
	writing.Wait()
	r.release()
	k.loop.do(func(context.Context) { k.loop.free(s) })
}

// greet reads and checks the first message.
func (k *kvSocket) greet(c *kvconn.Conn) (kvproto.Hello, error) {
	m, file, err := c.ReadWithin(helloWithin)
	if err != nil {
		return kvproto.Hello{}, err
	}
	closeFile(file)
	hello, ok := m.(kvproto.Hello)
	if !ok {
		return hello, refusef(ruleOrder, "the first message is %s, not hello", m.Type())
	}
	if err := checkHello(k.cfg, hello); err != nil {
		return hello, err
	}
	return hello, nil
}

// attach takes the connection's slot. It waits for one that is being given back, or
// whose transfers are not quiet, and a moment for one whose connection may have ended
// just now.
func (k *kvSocket) attach(ctx context.Context, s *slot) error {
	ctx, cancel := context.WithTimeout(ctx, attachWithin)
	defer cancel()
	moment := time.NewTimer(duplicateWithin)
	defer moment.Stop()
	for {
		var busy <-chan struct{}
		var refused *refusal
		err := k.loop.ask(ctx, func(context.Context) { busy, refused = k.loop.attach(s, k.epoch) })
		switch {
		case err != nil:
			// The turn may still run: give back what it takes.
			k.loop.do(func(context.Context) { k.loop.withdraw(s, err) })
			return err
		case busy == nil && refused != nil:
			return refused
		case busy == nil:
			return nil
		}
		ended := (<-chan time.Time)(nil)
		if refused != nil {
			ended = moment.C
		}
		select {
		case <-busy:
		case <-ended:
			return refused
		case <-ctx.Done():
			return refusef(ruleDuplicate, "copies may still touch the memory or blocks of the last %s", name(s.who))
		}
	}
}

// turnAway answers a connection that gets no slot.
func (k *kvSocket) turnAway(conn *net.UnixConn, c *kvconn.Conn, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		k.metrics.drop(portKV, reasonOf(err))
		k.strangers.warn("KV socket: connection without a hello", "error", err)
		return
	}
	k.metrics.refuse(r.rule)
	k.log.Warn("engine connection refused", "rule", r.rule, "text", r.text, "process", credentials(conn))
	c.Write(kvproto.Refused{Rule: r.rule, Text: r.text}, nil) //nolint:errcheck // it is gone either way
}

// write sends what the loop queues for the connection.
func (k *kvSocket) write(ctx context.Context, c *kvconn.Conn, s *slot) {
	for {
		w, ok := s.out.take(ctx)
		if !ok {
			return
		}
		err := c.Write(w.message, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %w", errSlowEngine, err)
		}
		if err != nil {
			s.shut(fmt.Errorf("send %s to the engine: %w", w.message.Type(), err))
			return
		}
		k.metrics.told(w.since)
	}
}

// checkHello refuses an engine that is not the one of the pod's configuration.
func checkHello(cfg *agentconfig.Config, h kvproto.Hello) error {
	if h.Version != kvproto.ProtocolVersion {
		return refusef(ruleHello, "version: the engine has %d, the agent %d", h.Version, kvproto.ProtocolVersion)
	}
	if h.Connection != kvproto.Scheduler && h.Connection != kvproto.Worker {
		return refusef(ruleHello, "connection: %.40q is neither scheduler nor worker", h.Connection)
	}
	l := cfg.Layout.Defaulted()
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"tp", h.TPSize, l.TP},
		{"dcp", h.DCP, l.DCP},
		{"interleave", dealing(h.DCP, h.Interleave), dealing(l.DCP, l.Interleave)},
		{"block size", h.BlockTokens, cfg.Block},
		{"model", h.Model, cfg.Model},
		{"KV type", plainType(kvlayout.KVType(h.KVType)), plainType(cfg.KVType)},
	} {
		if f.got != f.want {
			return refusef(ruleHello, "%s: the engine has %v, the pool %v", f.name, f.got, f.want)
		}
	}
	tp := l.TP
	if h.Connection == kvproto.Scheduler {
		tp = 1
	}
	switch {
	case h.DP < 0 || h.DP >= localRanks(cfg):
		return refusef(ruleHello, "dp: rank %d is outside the %d of this pod", h.DP, localRanks(cfg))
	case h.TP < 0 || h.TP >= tp:
		return refusef(ruleHello, "tp: rank %d is outside the %d of a %s", h.TP, tp, h.Connection)
	case h.Blocks < 1:
		return refusef(ruleHello, "blocks: the engine has %d", h.Blocks)
	case len(h.Faults) > 0 && cfg.Engine != kvlayout.Simulator:
		return refusef(ruleFaults, "faults %q: only a simulator may inject them, the engine is %s", h.Faults, cfg.Engine)
	}
	return nil
}

// dealing is the interleave, 1 where tokens are not dealt to several ranks.
func dealing(dcp, interleave int) int {
	if dcp <= 1 {
		return 1
	}
	return interleave
}

// plainType is what an element type means: Auto is BF16.
func plainType(t kvlayout.KVType) kvlayout.KVType {
	if t == kvlayout.Auto || t == "" {
		return kvlayout.BF16
	}
	return t
}

// localRanks is the number of data parallel ranks of the pod.
func localRanks(cfg *agentconfig.Config) int {
	l := cfg.Layout.Defaulted()
	return min(l.DPLocal, l.DP-cfg.DPStart)
}

// credentials tells which process opened a connection. Whether it may is the
// socket file's mode.
func credentials(conn *net.UnixConn) slog.Value {
	raw, err := conn.SyscallConn()
	if err != nil {
		return slog.StringValue(err.Error())
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return slog.StringValue(err.Error())
	}
	return slog.GroupValue(slog.Int("pid", int(cred.Pid)), slog.Int("uid", int(cred.Uid)), slog.Int("gid", int(cred.Gid)))
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close() //nolint:errcheck // never written to
	}
}
