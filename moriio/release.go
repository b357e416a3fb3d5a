package moriio

import (
	"math"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// Append appends m; a ConsumerTP of 0 is sent as 1. A text that is too long for a
// peer is cut.
func (m *Release) Append(b []byte) []byte { return write(b, m, releaseFields) }

func releaseFields(c *msgpack.Codec, m *Release) {
	c.Const("type", typeRelease)
	transferField(c, &m.Transfer)
	consumers := max(m.ConsumerTP, 1)
	if c.Has("consumer_tp_size", true) {
		msgpack.Int(c, "consumer_tp_size", &consumers, 1, MaxRanks)
	}
	if c.Reading() {
		m.ConsumerTP = consumers
	}
	msgpack.Nested(c, "pdpool", &m.PDPool, releasedFields)
}

func releasedFields(c *msgpack.Codec, r *Released) {
	msgpack.Int(c, "epoch", &r.Epoch, 0, math.MaxUint64)
	peerEpochField(c, &r.PeerEpoch)
	reasonFields(c, &r.Rule, &r.Text)
}
