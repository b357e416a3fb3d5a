package moriio

import (
	"math"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// Append appends m as vLLM's metadata message, fields at their default left out.
func (m *Metadata) Append(b []byte) []byte { return write(b, m, metadataFields) }

// ParseMetadata reads the first message of a handshake's answer. The six fields
// that every version sends must be there. The error is an *Error.
func ParseMetadata(b []byte) (*Metadata, error) { return parse(b, metadataFields) }

func metadataFields(c *msgpack.Codec, m *Metadata) {
	msgpack.String(c, "engine_id", &m.EngineID, MaxString)
	msgpack.Bytes(c, "agent_metadata", &m.EngineDesc, MaxDesc)
	msgpack.Ints(c, "kv_caches_base_addr", &m.BaseAddresses, 2*MaxLayers, 0, math.MaxUint64)
	msgpack.Int(c, "num_blocks", &m.NumBlocks, 0, math.MaxInt32)
	msgpack.Int(c, "block_len", &m.BlockLen, 0, maxNumber)
	msgpack.String(c, "attn_backend_name", &m.Backend, MaxString)
	if c.Has("kv_head_layouts", len(m.HeadLayouts) > 0) {
		msgpack.IntLists(c, "kv_head_layouts", &m.HeadLayouts, MaxLayers, layoutNumbers, 0, maxNumber)
	}
	if c.Has("mamba_state_layouts", len(m.StateLayouts) > 0) {
		msgpack.IntLists(c, "mamba_state_layouts", &m.StateLayouts, MaxLayers, layoutNumbers, 0, maxNumber)
	}
	if c.Has("attention_block_sizes", len(m.AttentionBlocks) > 0) {
		msgpack.IntMap(c, "attention_block_sizes", &m.AttentionBlocks, MaxLayers, 0, math.MaxInt32)
	}
	if c.Has("dcp_size", m.DCP != 0) {
		msgpack.Int(c, "dcp_size", &m.DCP, 1, MaxRanks)
	}
	if c.Has("cp_kv_cache_interleave_size", m.Interleave != 0) {
		msgpack.Int(c, "cp_kv_cache_interleave_size", &m.Interleave, 1, math.MaxInt32)
	}
	msgpack.Nested(c, "pdpool", &m.PDPool, agentFields)
}

// layoutNumbers bounds the numbers that describe one layer's heads or states: a
// handful of strides and one offset per plane or projection.
const layoutNumbers = 64
