package transferagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// memoryIDs numbers the memories that engines hand over; none is used twice.
type memoryIDs struct{ last atomic.Uint32 }

func (m *memoryIDs) next() transport.MemoryID { return transport.MemoryID(m.last.Add(1)) }

// reader takes what one connection of the engine sends. The memory of a worker
// and its regions are the reader's own until they are complete.
type reader struct {
	k *kvSocket
	s *slot
	c *kvconn.Conn

	id         transport.MemoryID
	file       *os.File
	bytes      []byte
	claim      memory.Identity // of file
	registered bool
	refused    bool // a message, which was logged
	regions    []kvlayout.Region
	names      []string
}

// read takes messages until the connection ends. What is wrong is refused and
// changes nothing.
func (r *reader) read(ctx context.Context) error {
	for {
		m, file, err := r.c.Read()
		if err == nil {
			err = r.take(m, file)
		}
		if wrong := (*kvproto.Error)(nil); errors.As(err, &wrong) {
			r.k.metrics.drop(portKV, wrong.Reason())
			err = refusef(ruleMessage, "%v", wrong)
		}
		var why *refusal
		switch {
		case errors.As(err, &why):
			r.refuse(m, why)
		case err != nil:
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// refuse answers a wrong message. The first of a connection is logged: an engine
// that is wrong once is wrong often, and the metric counts them all.
func (r *reader) refuse(m kvproto.Message, why *refusal) {
	r.k.metrics.refuse(why.rule)
	if !r.refused {
		r.refused = true
		r.k.log.Warn("engine message refused; further ones of the connection are counted only", "connection", name(r.s.who), "refusal", why)
	}
	r.s.send(refused(m, why.rule, why.text))
}

// take deals with one message; the file comes with Memory alone.
func (r *reader) take(m kvproto.Message, file *os.File) error {
	worker := r.s.who.Kind == kvproto.Worker
	switch m := m.(type) {
	case kvproto.Memory:
		return r.takeMemory(m, file)
	case kvproto.Region:
		return r.takeRegion(m)
	case kvproto.Ready:
		return r.finish()
	case kvproto.Save, kvproto.Sealed:
		if worker {
			return r.pass(m)
		}
	case kvproto.Expect, kvproto.Hold, kvproto.Receive, kvproto.Abort:
		if !worker {
			return r.pass(m)
		}
	}
	return refusef(ruleOrder, "%s does not belong on the connection of a %s", m.Type(), r.s.who.Kind)
}

// pass hands a message to the machine.
func (r *reader) pass(m kvproto.Message) error {
	l, s, came := r.k.loop, r.s, time.Now()
	if !l.through(func(ctx context.Context) {
		l.cause = came
		l.fromEngine(ctx, s, m)
	}) {
		return errEnded
	}
	return nil
}

func (r *reader) takeMemory(m kvproto.Memory, f *os.File) error {
	refuse := func(format string, args ...any) error {
		closeFile(f)
		return refusef(ruleMemory, format, args...)
	}
	switch {
	case r.s.who.Kind != kvproto.Worker:
		return refuse("memory comes from workers, not from a %s", r.s.who.Kind)
	case r.bytes != nil:
		return refuse("the memory of %s was handed over already", name(r.s.who))
	}
	claim, err := r.k.claims.Claim(f)
	if err != nil {
		return refuse("memory of %s: %v", name(r.s.who), err)
	}
	b, err := memory.MapSealed(f, m.Bytes)
	if err != nil {
		r.k.claims.Release(claim)
		return refuse("memory of %s: %v", name(r.s.who), err)
	}
	r.file, r.bytes, r.claim = f, b, claim
	return nil
}

func (r *reader) takeRegion(m kvproto.Region) error {
	switch {
	case r.s.who.Kind != kvproto.Worker:
		return refusef(ruleRegions, "regions come from workers, not from a %s", r.s.who.Kind)
	case r.registered:
		return refusef(ruleRegions, "region of layer %d after ready", m.Layer)
	case len(r.regions) >= kvproto.MaxRegions:
		return refusef(ruleRegions, "more than %d regions", kvproto.MaxRegions)
	}
	r.regions, r.names = append(r.regions, layoutRegion(m)), append(r.names, m.Name)
	return nil
}

// finish checks the regions and makes the memory one that peers may write to.
// After a refusal the worker may send its regions again.
func (r *reader) finish() error {
	if r.s.who.Kind != kvproto.Worker || r.registered {
		return refusef(ruleOrder, "ready from %s, which is not handing memory over", name(r.s.who))
	}
	if r.bytes == nil {
		return refusef(ruleMemory, "ready from %s without a memory", name(r.s.who))
	}
	regions, names := r.regions, r.names
	r.regions, r.names = nil, nil
	if err := checkRegions(r.k.cfg, r.s.hello, int64(len(r.bytes)), regions); err != nil {
		return refusef(ruleRegions, "%v", err)
	}
	r.id = r.k.ids.next()
	if err := r.k.mover.Register(r.id, transport.Memory{Bytes: r.bytes, File: r.file}); err != nil {
		return refusef(ruleMemory, "memory of %s: %v", name(r.s.who), err)
	}
	r.registered = true
	rank := moriio.AgentRank{
		DP: r.k.cfg.DPStart + r.s.who.DP, TP: r.s.who.TP, Memory: uint32(r.id), Regions: slices.Clip(regions),
	}
	l := r.k.loop
	if !l.do(func(context.Context) { l.mapped(r.s, rank, names) }) {
		return errEnded
	}
	return nil
}

// release gives the memory back once no copy touches it.
func (r *reader) release() {
	if r.bytes == nil {
		return
	}
	if r.registered {
		r.k.mover.Unregister(r.id)
	}
	err := memory.Unmap(r.bytes)
	r.k.claims.Release(r.claim)
	if err = errors.Join(err, r.file.Close()); err != nil {
		r.k.log.Error("memory not given back", "connection", name(r.s.who), "error", fmt.Sprint(err))
	}
	r.bytes = nil
}
