package moriio

import (
	"math"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio/msgpack"
)

// AgentVersion is the version of the fields of Agent.
const AgentVersion = 1

var roles = []msgpack.Choice[kvlayout.Role]{
	{Value: kvlayout.Prefill, Name: "prefill"},
	{Value: kvlayout.Decode, Name: "decode"},
}

func agentFields(c *msgpack.Codec, a *Agent) {
	msgpack.Int(c, "version", &a.Version, 1, math.MaxInt32)
	msgpack.Int(c, "epoch", &a.Epoch, 0, math.MaxUint64)
	msgpack.String(c, "pairing", &a.Pairing, MaxString)
	msgpack.Enum(c, "role", &a.Role, roles)
	msgpack.String(c, "pool", &a.Pool, MaxString)
	msgpack.Int(c, "dp_start", &a.DPStart, 0, math.MaxInt32)
	msgpack.Struct(c, "layout", &a.Layout, layoutFields)
	msgpack.Int(c, "block", &a.Block, 0, math.MaxInt32)
	msgpack.String(c, "kv_type", &a.KVType, MaxString)
	msgpack.String(c, "model", &a.Model, MaxString)
	msgpack.String(c, "mover", &a.Mover, MaxString)
	msgpack.Bytes(c, "address", &a.Address, MaxAddress)
	left := MaxMemory
	msgpack.List(c, "ranks", &a.Ranks, MaxRanks, 16, func(c *msgpack.Codec, r *AgentRank) {
		rankFields(c, r, min(left, MaxRegions))
		left -= len(r.Regions)
	})
}

func layoutFields(c *msgpack.Codec, l *kvlayout.Layout) {
	msgpack.Int(c, "tp", &l.TP, 0, MaxRanks)
	msgpack.Int(c, "pp", &l.PP, 0, MaxRanks)
	msgpack.Int(c, "dp", &l.DP, 0, MaxRanks)
	msgpack.Int(c, "dp_local", &l.DPLocal, 0, MaxRanks)
	msgpack.Int(c, "dcp", &l.DCP, 0, MaxRanks)
	msgpack.Int(c, "interleave", &l.Interleave, 0, math.MaxInt32)
}

// rankFields are those of a rank with at most so many regions.
func rankFields(c *msgpack.Codec, r *AgentRank, regions int) {
	msgpack.Int(c, "dp", &r.DP, 0, math.MaxInt32)
	msgpack.Int(c, "tp", &r.TP, 0, MaxRanks-1)
	msgpack.Int(c, "memory", &r.Memory, 0, math.MaxUint32)
	msgpack.Tuples(c, "regions", &r.Regions, regions, 10, regionElements)
}

// regionElements is the row of a region: layer, offset, block stride, blocks,
// tokens per block, first head, heads, head stride, token stride, row bytes.
func regionElements(t *msgpack.Tuple, r *kvlayout.Region) {
	msgpack.Element(t, &r.Layer, 0, math.MaxInt32)
	msgpack.Element(t, &r.Offset, 0, maxNumber)
	msgpack.Element(t, &r.BlockStride, 0, maxNumber)
	msgpack.Element(t, &r.Blocks, 0, math.MaxInt32)
	msgpack.Element(t, &r.BlockTokens, 0, math.MaxInt32)
	msgpack.Element(t, &r.Heads.First, 0, math.MaxInt32)
	msgpack.Element(t, &r.Heads.Count, 0, math.MaxInt32)
	msgpack.Element(t, &r.HeadStride, 0, maxNumber)
	msgpack.Element(t, &r.TokenStride, 0, maxNumber)
	msgpack.Element(t, &r.RowBytes, 0, maxNumber)
}
