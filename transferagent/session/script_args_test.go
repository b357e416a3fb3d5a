package session_test

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// args are the words after a command: a transfer or number, and key=value pairs.
type args struct {
	id     string
	values map[string]string
}

func parseArgs(words []string) (args, error) {
	a := args{values: map[string]string{}}
	for _, w := range words {
		key, value, pair := strings.Cut(w, "=")
		switch {
		case pair || a.id != "":
			a.values[key] = strings.ReplaceAll(value, "_", " ")
		default:
			a.id = w
		}
	}
	return a, nil
}

func (a args) has(key string) bool {
	_, ok := a.values[key]
	return ok || a.id == key
}

// set calls f with the number of a key, if it is there.
func (a args) set(key string, f func(n int)) {
	if a.has(key) {
		f(a.int(key))
	}
}

func (a args) int(key string) int {
	n, _ := strconv.Atoi(a.values[key])
	return n
}

// blocks reads "3,4,5".
func (a args) blocks() []int32 {
	var ids []int32
	for word := range strings.SplitSeq(a.values["blocks"], ",") {
		if n, err := strconv.Atoi(word); err == nil {
			ids = append(ids, int32(n))
		}
	}
	return ids
}

func (a args) conn() session.Conn {
	if a.id == kvproto.Scheduler {
		return scheduler(a.int("dp"))
	}
	return worker(a.int("dp"), a.int("tp"))
}

func (a args) connOf(m kvproto.Message) session.Conn {
	switch m.(type) {
	case kvproto.Save, kvproto.Sealed:
		return worker(a.int("dp"), a.int("tp"))
	}
	return scheduler(a.int("dp"))
}

func engineMessage(name string, a args, other shape) (kvproto.Message, error) {
	hash, err := hex.DecodeString(a.values["hash"])
	if err != nil {
		return nil, err
	}
	switch name {
	case "expect":
		expect := kvproto.Expect{Transfer: a.id, Tokens: a.int("tokens"), Hash: hash}
		if a.has("peer") {
			expect.Peer = kvproto.Peer{Host: other.host, Handshake: 1, Notify: 2, DP: a.int("peer"), TPSize: other.tp}
		}
		return expect, nil
	case "hold":
		return kvproto.Hold{Transfer: a.id, Blocks: a.blocks(), Tokens: a.int("tokens")}, nil
	case "save":
		return kvproto.Save{Transfer: a.id, Layer: a.int("layer")}, nil
	case "seal":
		return kvproto.Sealed{Transfer: a.id}, nil
	case "receive":
		return kvproto.Receive{
			Transfer: a.id, Blocks: a.blocks(), FirstToken: a.int("first"), Tokens: a.int("tokens"),
			Peer: kvproto.Peer{Host: other.host, Handshake: 1, Notify: 2, DP: a.int("peerdp"), TPSize: other.tp},
		}, nil
	case "abort":
		return kvproto.Abort{Transfer: a.id}, nil
	}
	return nil, fmt.Errorf("unknown event %q", name)
}

// alter forges fields of a message.
func alter(m any, a args) {
	switch m := m.(type) {
	case *moriio.RemoteBlocks:
		alterBlocks(m, a)
	case *moriio.WriteDone:
		a.set("writer", func(n int) { m.PDPool.WriterTP = n })
		a.set("epoch", func(n int) { m.PDPool.Epoch = uint64(n) })
		a.set("peerepoch", func(n int) { m.PDPool.PeerEpoch = uint64(n) })
		a.set("stock", func(int) { m.PDPool = nil })
	case *moriio.Release:
		a.set("peerepoch", func(n int) { m.PDPool.PeerEpoch = uint64(n) })
		a.set("epoch", func(n int) { m.PDPool.Epoch = uint64(n) })
		a.set("rule", func(int) { m.PDPool.Rule = a.values["rule"] })
		a.set("stock", func(int) { m.PDPool = nil })
	}
}

func alterBlocks(m *moriio.RemoteBlocks, a args) {
	to := m.PDPool
	a.set("epoch", func(n int) { to.Epoch = uint64(n) })
	a.set("peerepoch", func(n int) { to.PeerEpoch = uint64(n) })
	a.set("dp", func(n int) { to.PrefillDP = n })
	a.set("tokens", func(n int) { to.Tokens = n })
	a.set("port", func(n int) { to.Notify = n })
	a.set("block", func(n int) { m.Blocks[0] = int32(n) })
	a.set("blocks", func(n int) { m.Blocks = m.Blocks[:n] })
	a.set("groups", func(int) { m.Groups = [][]int32{{1}, {2}} })
	a.set("id", func(n int) { m.Transfer = strings.Repeat("x", n) })
	a.set("stock", func(int) { m.PDPool = nil })
}
