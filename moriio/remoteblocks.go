package moriio

import (
	"math"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// Append appends m; with Groups set these are sent, else Blocks as a flat list.
// Without any block the list is empty, which ends the listener of a stock peer.
func (m *RemoteBlocks) Append(b []byte) []byte { return write(b, m, remoteBlocksFields) }

func remoteBlocksFields(c *msgpack.Codec, m *RemoteBlocks) {
	if c.Has("req_id", true) {
		msgpack.String(c, "req_id", &m.RequestID, MaxString)
	}
	transferField(c, &m.Transfer)
	groups, flat := m.Groups, len(m.Groups) == 0
	if flat {
		groups = [][]int32{m.Blocks}
	}
	msgpack.Groups(c, "block_notify_list", &groups, &flat, MaxGroups, MaxBlocks, 0, math.MaxInt32)
	if c.Reading() && len(groups) > 0 {
		m.Blocks = groups[0]
		if !flat {
			m.Groups = groups
		}
	}
	msgpack.Int(c, "decode_rank", &m.DecodeRank, 0, math.MaxInt32)
	c.Const("type", typeRemoteBlocks)
	msgpack.Nested(c, "pdpool", &m.PDPool, allocationFields)
}

func allocationFields(c *msgpack.Codec, a *Allocation) {
	msgpack.Int(c, "epoch", &a.Epoch, 0, math.MaxUint64)
	msgpack.Int(c, "peer_epoch", &a.PeerEpoch, 0, math.MaxUint64)
	msgpack.String(c, "host", &a.Host, MaxString)
	msgpack.Int(c, "handshake", &a.Handshake, 1, maxPort)
	msgpack.Int(c, "notify", &a.Notify, 1, maxPort)
	msgpack.Int(c, "prefill_dp", &a.PrefillDP, 0, math.MaxInt32)
	msgpack.Int(c, "first_token", &a.FirstToken, 0, math.MaxInt32)
	msgpack.Int(c, "tokens", &a.Tokens, 0, math.MaxInt32)
	msgpack.Bytes(c, "hash", &a.Hash, maxHash)
}

// maxHash is the length of the longest prompt hash.
const maxHash = 32
