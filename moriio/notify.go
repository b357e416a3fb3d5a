package moriio

import "github.com/pdpool/pdpool/moriio/msgpack"

// The types of notifications on the wire.
const (
	typeRemoteBlocks = "remote_blocks"
	typeWriteDone    = "write_done"
	typeWriteFailed  = "write_failed"
	typeRelease      = "release"
	typeHello        = "pdpool_hello"
)

// PlainID is a notification of an old peer, the bare transfer id: to decode it
// means write_done, to prefill one release by a consumer with TP 1.
type PlainID struct{ Transfer string }

// Append appends the id.
func (m *PlainID) Append(b []byte) []byte { return append(b, m.Transfer...) }

// ParseNotify reads whatever arrives at a notify port: *RemoteBlocks, *WriteDone,
// *WriteFailed, *Release, *Hello or *PlainID. A map without type that has req_id is a
// RemoteBlocks; an empty list of blocks, which vLLM 0.32 sends for a prompt that decode
// has already, leaves its Blocks nil. A Release without consumer_tp_size has ConsumerTP 1.
// The error is an *Error.
func ParseNotify(b []byte) (any, error) {
	if len(b) == 0 {
		return nil, msgpack.Errorf(Truncated, "", "empty message")
	}
	if !msgpack.IsMap(b) {
		return parsePlainID(b)
	}
	c, err := open(b)
	if err != nil {
		return nil, err
	}
	switch kind := notifyType(c); kind {
	case typeRemoteBlocks:
		return unless(read(c, remoteBlocksFields))
	case typeWriteDone:
		return unless(read(c, writeDoneFields))
	case typeWriteFailed:
		return unless(read(c, writeFailedFields))
	case typeRelease:
		return unless(read(c, releaseFields))
	case typeHello:
		return unless(read(c, helloFields))
	default:
		return nil, msgpack.Errorf(UnknownType, "", "notification of type %.64q", kind)
	}
}

// unless keeps a nil pointer from becoming a value that is not nil.
func unless[T any](m *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

func notifyType(c *msgpack.Codec) string {
	if !c.Has("type", false) && c.Has("req_id", false) {
		return typeRemoteBlocks
	}
	return c.Text("type")
}

// parsePlainID takes text of two bytes or more: one ASCII byte is a MessagePack
// number, which no peer sends.
func parsePlainID(b []byte) (any, error) {
	if len(b) < 2 || !msgpack.IsPlainText(b, MaxString) {
		return nil, msgpack.Errorf(Malformed, "", "neither a map nor a transfer id (%d bytes)", len(b))
	}
	return &PlainID{Transfer: string(b)}, nil
}

// transferField is the id that names the transfer on both sides; never empty.
func transferField(c *msgpack.Codec, v *string) {
	msgpack.String(c, "transfer_id", v, MaxString)
	if *v == "" {
		c.Fail(BadField, "transfer_id", "is empty")
	}
}
