package moriio

import (
	"math"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// Append appends m.
func (m *WriteDone) Append(b []byte) []byte { return write(b, m, writeDoneFields) }

func writeDoneFields(c *msgpack.Codec, m *WriteDone) {
	c.Const("type", typeWriteDone)
	transferField(c, &m.Transfer)
	if c.Has("num_writers", m.NumWriters > 1) {
		msgpack.Int(c, "num_writers", &m.NumWriters, 1, MaxRanks)
	}
	msgpack.Nested(c, "pdpool", &m.PDPool, reportFields)
}

func reportFields(c *msgpack.Codec, r *Report) {
	msgpack.Int(c, "epoch", &r.Epoch, 0, math.MaxUint64)
	peerEpochField(c, &r.PeerEpoch)
	msgpack.Int(c, "writer_dp", &r.WriterDP, 0, math.MaxInt32)
	msgpack.Int(c, "writer_tp", &r.WriterTP, 0, MaxRanks-1)
	msgpack.Int(c, "reader_tp", &r.ReaderTP, 0, MaxRanks-1)
	msgpack.Int(c, "bytes", &r.Bytes, 0, math.MaxInt64)
	reasonFields(c, &r.Rule, &r.Text)
}

// peerEpochField is the incarnation of the receiver that a message is meant for, left out
// when 0.
func peerEpochField(c *msgpack.Codec, epoch *uint64) {
	if c.Has("peer_epoch", *epoch != 0) {
		msgpack.Int(c, "peer_epoch", epoch, 0, math.MaxUint64)
	}
}

// reasonFields is why something ended: a rule and a sentence, left out when empty.
func reasonFields(c *msgpack.Codec, rule, text *string) {
	if c.Has("rule", *rule != "") {
		msgpack.String(c, "rule", rule, MaxString)
	}
	if c.Has("text", *text != "") {
		msgpack.Sentence(c, "text", text, MaxString)
	}
}
