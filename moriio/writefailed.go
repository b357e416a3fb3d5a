package moriio

import "github.com/pdpool/pdpool/moriio/msgpack"

// Append appends m. A text that is too long for a peer is cut.
func (m *WriteFailed) Append(b []byte) []byte { return write(b, m, writeFailedFields) }

func writeFailedFields(c *msgpack.Codec, m *WriteFailed) {
	c.Const("type", typeWriteFailed)
	transferField(c, &m.Transfer)
	msgpack.Nested(c, "pdpool", &m.PDPool, reportFields)
}
