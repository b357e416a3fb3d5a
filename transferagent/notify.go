package transferagent

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// The ports as metric labels.
const (
	portHandshake = "handshake"
	portNotify    = "notify"
	portPing      = "ping"
	portData      = "data"
	portHTTP      = "http"
	portKV        = "kv"
)

// Bounds of what the control ports take.
const (
	maxHandshake = 1 << 10  // bytes of a handshake's request, all frames
	maxPing      = 64 << 10 // bytes of a registration
	maxBlockID   = 5        // bytes of a block id, as MessagePack
	maxNotify    = maxBlockID*moriio.MaxBlocks + 64<<10
	listenAgain  = 50 * time.Millisecond

	controlConns = 2048
	// receiving is the most that the messages of all peers take until they are handled, in
	// a pool with a secret without the first uncharged bytes of each.
	receiving = 32 << 20
	uncharged = 16 << 10
	// hostConns are those of one host: an agent needs one, and one more while it
	// connects anew. Those of a pool with a secret are known to be agents: on the
	// host's network there may be several pods of one address.
	hostConns     = 16
	poolHostConns = 256
	// memberConns are those of one agent in a pool with a secret: more than it has is a
	// fault of its, and the ones that are older than that are dead.
	memberConns = 4
	// handshakeIdle ends a connection to the handshake port that asks nothing: who
	// dials it asks at once and leaves with the answer. The notify port has no such
	// limit: peers keep their one connection to it however long there is nothing to
	// say, and take its end for ours. What stays open there is bounded by hostConns,
	// and a host that is gone by the keep-alive of TCP.
	handshakeIdle = 30 * time.Second
	// controlQueue is how many messages may wait for a peer that asks: two answer a request.
	controlQueue = 4

	// In a pool with a secret a connection is on trial until its first proof, which
	// agents send at once.
	trialMessage = 4 << 10
	trialWithin  = 5 * time.Second
	pingWithin   = 15 * time.Second // a stock engine registers every 3 s
)

// reasonUnproven counts what came without the pool's proof.
const reasonUnproven = "no-proof"

// challengeProperty is the property of READY by which the control ports of a pool with a
// secret give each connection a random text. What comes by it is proved for that text, so
// that nothing which was heard on another connection is good on this one.
const challengeProperty = "X-PDPool-Challenge"

// takeNotify serves one message of the notify port. In a pool with a secret what
// comes without its proof is not even read, and ends the connection; what is
// malformed otherwise is counted and dropped.
func (l *loop) takeNotify(p *zmtp.Peer, frames [][]byte) {
	came := time.Now()
	if l.keys.current().Set() && !l.proved(p, frames) {
		return
	}
	if len(frames) != 1 {
		l.metrics.drop(portNotify, "frames")
		return
	}
	m, err := moriio.ParseNotify(frames[0])
	if err != nil {
		l.metrics.drop(portNotify, reasonOf(err))
		return
	}
	if hello, ok := m.(*moriio.Hello); ok {
		p.Prove(memberName(hello.Epoch))
		return
	}
	l.through(func(ctx context.Context) {
		l.cause = came
		if !l.turnAway(ctx, m) {
			l.raise(session.PeerMessage{Message: m})
		}
	})
}

// memberName is what the connections of an agent's incarnation are counted by.
func memberName(epoch uint64) string { return strconv.FormatUint(epoch, 16) }

// proved checks the proof of a notification: for this connection, and this place on it.
func (l *loop) proved(p *zmtp.Peer, frames [][]byte) bool {
	if len(frames) == 1 {
		signed, proof, ok := moriio.CutAuth(frames[0])
		if ok && l.keys.valid(proof, poolkey.Notification, placeOf(p.Challenge(), p.Before(), signed)...) {
			return true
		}
	}
	l.stranger(p, portNotify)
	return false
}

// placeOf is what a notification's proof is over.
func placeOf(challenge string, before uint64, signed []byte) [][]byte {
	return [][]byte{[]byte(challenge), binary.BigEndian.AppendUint64(nil, before), signed}
}

// stranger ends a connection that has not proved to be an agent of the pool.
func (l *loop) stranger(p *zmtp.Peer, port string) {
	l.metrics.drop(port, reasonUnproven)
	l.strangers.warn("a message without the pool's proof was dropped", "port", port, "from", p.Addr())
	p.Close()
}

// open makes room for the pool's proof in a notification, when there is a secret.
func (l *loop) open(message []byte) ([]byte, error) {
	if !l.keys.current().Set() {
		return message, nil
	}
	return moriio.OpenAuth(message)
}

// controlOptions are the limits of a control port.
func controlOptions(m *metrics, port string, keys *keyring) zmtp.Options {
	o := zmtp.Options{
		MaxFrame: maxNotify, MaxConnections: controlConns, MaxPerHost: hostConns, Budget: zmtp.NewBudget(receiving, 0), Queue: controlQueue,
		Count: func(reason string) {
			switch reason {
			case zmtp.Closed, zmtp.Probe, zmtp.Shutdown:
			default:
				m.drop(port, reason)
			}
		},
	}
	switch port {
	case portHandshake:
		o.MaxFrame, o.MaxFrames, o.Idle = maxHandshake, 2, handshakeIdle
	case portPing:
		// What proves itself here is the pod's engine, by a registration that is its own.
		o.MaxFrame = maxPing
		o.Trial = &zmtp.Trial{Message: maxPing, Within: pingWithin}
	}
	if keys.current().Set() {
		o.MaxPerHost, o.MaxPerMember, o.Challenge = poolHostConns, memberConns, challengeProperty
		o.Trial = &zmtp.Trial{Message: trialMessage, Within: trialWithin}
		o.Budget = zmtp.NewBudget(receiving, uncharged)
	}
	return o
}

// reopener is a ROUTER that can part from all its peers at once: they see their
// connections end and may connect again.
type reopener struct {
	log     *slog.Logger
	address string
	options zmtp.Options
	handle  zmtp.Handler

	mu     sync.Mutex
	router *zmtp.Router
	parted bool
}

// open binds the port; serve follows.
func (r *reopener) open(ctx context.Context) error {
	router, err := zmtp.Listen(ctx, r.address, r.options)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.router, r.parted = router, false
	return nil
}

// serve handles messages until ctx ends.
func (r *reopener) serve(ctx context.Context) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		router := r.router
		r.mu.Unlock()
		if err := router.Serve(ctx, r.handle); err != nil {
			return err
		}
		if err := r.again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// again binds the port anew after part, as soon as the system lets it.
func (r *reopener) again(ctx context.Context) error {
	r.mu.Lock()
	parted := r.parted
	r.mu.Unlock()
	if !parted && ctx.Err() == nil {
		return errors.New("listener was closed")
	}
	for ctx.Err() == nil {
		err := r.open(ctx)
		if err == nil {
			return nil
		}
		r.log.Error("port can't be opened again", "address", r.address, "error", err)
		pause(ctx, listenAgain)
	}
	return nil
}

// part ends all connections and opens the port anew.
func (r *reopener) part() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parted = true
	r.router.Close()
}

// close ends the listener where serve never ran.
func (r *reopener) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.router.Close()
	return nil
}
