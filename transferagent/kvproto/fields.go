package kvproto

import (
	"math"
	"time"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// Limits that are not part of the contract's text.
const (
	maxRanks  = 1024
	maxHash   = 32
	maxFaults = 64
	maxPort   = 65535
	maxType   = 64 // bytes of the name of a type
	maxNumber = math.MaxInt64 >> 1
)

var connections = []msgpack.Choice[string]{
	{Value: Scheduler, Name: Scheduler},
	{Value: Worker, Name: Worker},
}

// transferField is the id of a transfer; never empty.
func transferField(c *msgpack.Codec, v *string) {
	msgpack.String(c, "transfer", v, MaxTransferID)
	if *v == "" {
		c.Fail(BadField, "transfer", "is empty")
	}
}

func helloFields(c *msgpack.Codec, m *Hello) {
	msgpack.Int(c, "version", &m.Version, 0, math.MaxInt32)
	msgpack.Enum(c, "connection", &m.Connection, connections)
	msgpack.Int(c, "dp", &m.DP, 0, maxRanks-1)
	msgpack.Int(c, "tp", &m.TP, 0, maxRanks-1)
	msgpack.Int(c, "tp_size", &m.TPSize, 0, maxRanks)
	msgpack.Int(c, "dcp", &m.DCP, 0, maxRanks)
	msgpack.Int(c, "interleave", &m.Interleave, 0, math.MaxInt32)
	msgpack.Int(c, "block_tokens", &m.BlockTokens, 0, math.MaxInt32)
	msgpack.Int(c, "blocks", &m.Blocks, 0, math.MaxInt32)
	msgpack.String(c, "model", &m.Model, MaxText)
	msgpack.String(c, "kv_type", &m.KVType, MaxText)
	if c.Has("faults", len(m.Faults) > 0) {
		msgpack.Strings(c, "faults", &m.Faults, maxFaults, MaxText)
	}
}

func welcomeFields(c *msgpack.Codec, m *Welcome) {
	msgpack.Int(c, "epoch", &m.Epoch, 0, math.MaxUint64)
	milliseconds(c, "linger_ms", &m.Linger, MaxLinger)
	milliseconds(c, "silence_ms", &m.Silence, MaxSilence)
}

// milliseconds are a time, rounded up, left out when it is 0.
func milliseconds(c *msgpack.Codec, key string, d *time.Duration, most time.Duration) {
	if c.Has(key, *d > 0) {
		ms := int64((*d + time.Millisecond - 1) / time.Millisecond)
		msgpack.Int(c, key, &ms, 1, int64(most/time.Millisecond))
		*d = time.Duration(ms) * time.Millisecond
	}
}

func memoryFields(c *msgpack.Codec, m *Memory) {
	msgpack.Int(c, "bytes", &m.Bytes, 1, maxNumber)
}

func regionFields(c *msgpack.Codec, m *Region) {
	msgpack.String(c, "name", &m.Name, MaxText)
	msgpack.Int(c, "layer", &m.Layer, 0, math.MaxInt32)
	msgpack.Int(c, "offset", &m.Offset, 0, maxNumber)
	msgpack.Int(c, "block_stride", &m.BlockStride, 0, maxNumber)
	msgpack.Int(c, "blocks", &m.Blocks, 0, math.MaxInt32)
	msgpack.Int(c, "block_tokens", &m.BlockTokens, 0, math.MaxInt32)
	msgpack.Int(c, "head_first", &m.HeadFirst, 0, math.MaxInt32)
	msgpack.Int(c, "head_count", &m.HeadCount, 0, math.MaxInt32)
	msgpack.Int(c, "head_stride", &m.HeadStride, 0, maxNumber)
	msgpack.Int(c, "token_stride", &m.TokenStride, 0, maxNumber)
	msgpack.Int(c, "row_bytes", &m.RowBytes, 0, maxNumber)
}

func expectFields(c *msgpack.Codec, m *Expect) {
	transferField(c, &m.Transfer)
	msgpack.Int(c, "tokens", &m.Tokens, 0, math.MaxInt32)
	if c.Has("hash", len(m.Hash) > 0) {
		msgpack.Bytes(c, "hash", &m.Hash, maxHash)
	}
	if c.Has("peer", m.Peer != Peer{}) {
		msgpack.Struct(c, "peer", &m.Peer, peerFields)
	}
}

func holdFields(c *msgpack.Codec, m *Hold) {
	transferField(c, &m.Transfer)
	msgpack.Ints(c, "blocks", &m.Blocks, MaxBlocks, 0, math.MaxInt32)
	msgpack.Int(c, "tokens", &m.Tokens, 0, math.MaxInt32)
}

func saveFields(c *msgpack.Codec, m *Save) {
	transferField(c, &m.Transfer)
	msgpack.Int(c, "layer", &m.Layer, 0, math.MaxInt32)
}

func receiveFields(c *msgpack.Codec, m *Receive) {
	transferField(c, &m.Transfer)
	msgpack.Ints(c, "blocks", &m.Blocks, MaxBlocks, 0, math.MaxInt32)
	msgpack.Int(c, "first_token", &m.FirstToken, 0, math.MaxInt32)
	msgpack.Int(c, "tokens", &m.Tokens, 0, math.MaxInt32)
	msgpack.Struct(c, "peer", &m.Peer, peerFields)
}

func peerFields(c *msgpack.Codec, p *Peer) {
	msgpack.String(c, "host", &p.Host, MaxText)
	msgpack.Int(c, "handshake", &p.Handshake, 1, maxPort)
	msgpack.Int(c, "notify", &p.Notify, 1, maxPort)
	msgpack.Int(c, "dp", &p.DP, 0, math.MaxInt32)
	msgpack.Int(c, "tp_size", &p.TPSize, 0, maxRanks)
}

func failedFields(c *msgpack.Codec, m *Failed) {
	transferField(c, &m.Transfer)
	msgpack.String(c, "rule", &m.Rule, MaxText)
	msgpack.Sentence(c, "text", &m.Text, MaxText)
}

func refusedFields(c *msgpack.Codec, m *Refused) {
	msgpack.String(c, "rule", &m.Rule, MaxText)
	msgpack.Sentence(c, "text", &m.Text, MaxText)
	if c.Has("message", m.Message != "") {
		msgpack.String(c, "message", &m.Message, maxType)
	}
	if c.Has("transfer", m.Transfer != "") {
		transferField(c, &m.Transfer)
	}
}
