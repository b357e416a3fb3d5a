package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// ask is a line from the measuring process to its peer, answer the line back.
type ask struct {
	// Prepare makes targets of this pattern; the memory of the one before goes.
	Prepare string `json:"prepare,omitempty"`
	Sum     bool   `json:"sum,omitempty"`
}

type answer struct {
	Address []byte             `json:"address,omitempty"` // of the mover, in the first line
	Stream  string             `json:"stream,omitempty"`  // where absorb listens, after prepare
	First   transport.MemoryID `json:"first"`             // of the targets, after prepare
	Sum     uint32             `json:"sum"`               // of the targets, if it was asked
	CPU     float64            `json:"cpu"`               // seconds that the process has used
	Error   string             `json:"error,omitempty"`
}

// peer is the process whose memory is written.
type peer struct {
	mover   transport.Mover
	dst     [][]byte
	next    transport.MemoryID
	release func() error // what belongs to the pattern
}

// ServePeer is the other process of a benchmark: it answers the lines of in on out
// and returns when in ends.
func ServePeer(ctx context.Context, backend agentconfig.Backend, dir string, in io.Reader, out io.Writer) error {
	m, err := newMover(backend, dir, "peer") //nolint:contextcheck // a mover lives until Close
	if err != nil {
		return err
	}
	p := &peer{mover: m, release: func() error { return nil }}
	defer m.Close()                //nolint:errcheck // the process ends
	defer func() { p.release() }() //nolint:errcheck // likewise
	to := json.NewEncoder(out)
	if err := to.Encode(answer{Address: m.Address()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var a ask
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return fmt.Errorf("line %.80q: %w", lines.Text(), err)
		}
		reply := answer{}
		if a.Prepare != "" {
			if reply, err = p.prepare(ctx, a.Prepare); err != nil {
				reply.Error = err.Error()
			}
		}
		reply.CPU = cpuSeconds()
		if a.Sum {
			reply.Sum = sum(p.dst)
		}
		if err := to.Encode(reply); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p *peer) prepare(ctx context.Context, name string) (answer, error) {
	err := p.release()
	p.release, p.dst = func() error { return nil }, nil
	if err != nil {
		return answer{}, err
	}
	found, err := Named(name)
	if err != nil {
		return answer{}, err
	}
	pattern := found[0]
	first := p.next
	var undo []func() error
	p.release = func() error {
		var all error
		for _, f := range undo {
			all = errors.Join(all, f())
		}
		return all
	}
	for range pattern.targets {
		m, free, err := mapped(pattern.size)
		if err != nil {
			return answer{}, err
		}
		id := p.next
		p.next++
		undo = append(undo, func() error { p.mover.Unregister(id); return free() })
		if err := p.mover.Register(id, m); err != nil {
			return answer{}, err
		}
		p.dst = append(p.dst, m.Bytes)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return answer{}, err
	}
	undo = append(undo, l.Close)
	buf := make([]byte, pattern.Bytes())
	go func() { // ends with the listener and with the connection's other end
		c, err := l.Accept()
		if err == nil {
			absorb(c, buf) //nolint:errcheck // the other end sees it
			c.Close()      //nolint:errcheck // likewise
		}
	}()
	return answer{Stream: l.Addr().String(), First: first}, nil
}
