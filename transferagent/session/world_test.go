package session_test

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// start is when every test begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var timeouts = session.Timeouts{
	Handshake: 8 * time.Second, Defer: 60 * time.Second, Transfer: 30 * time.Second, ReceiveAbort: 90 * time.Second,
}

// shape is the layout of one side of a test.
type shape struct {
	role            kvlayout.Role
	tp, dp, dcp, il int
	block, blocks   int
	epoch           uint64
	pairing, host   string
	kind            kvlayout.Kind
	kvHeads, layers int
}

func (s shape) geometry() kvlayout.Geometry {
	g := kvlayout.Geometry{Model: "test", Kind: s.kind, Layers: s.layers, AttentionHeads: 8 * s.kvHeads, KVHeads: s.kvHeads, HeadValues: 2, MoE: true}
	if s.kind == kvlayout.MLA {
		g.AttentionHeads, g.KVHeads = 16, 1
	}
	return g
}

func (s shape) layout() kvlayout.Layout {
	return kvlayout.Layout{TP: s.tp, DP: s.dp, DCP: s.dcp, Interleave: s.il}
}

// ranks are the memories of a side: layer after layer, a block's heads after one
// another. Memory ids start at base.
func (s shape) ranks(base uint32) []moriio.AgentRank {
	g := s.geometry()
	row := kvlayout.RowBytes(g, kvlayout.BF16)
	var ranks []moriio.AgentRank
	for dp := range s.dp {
		for tp := range s.tp {
			heads := kvlayout.HeadsOf(g, s.layout(), tp)
			r := moriio.AgentRank{DP: dp, TP: tp, Memory: base + uint32(dp*s.tp+tp)}
			stride := int64(s.block) * int64(heads.Count) * row
			for layer := range s.layers {
				r.Regions = append(r.Regions, kvlayout.Region{
					Layer: layer, Offset: int64(layer) * int64(s.blocks) * stride, BlockStride: stride, Blocks: s.blocks, BlockTokens: s.block,
					Heads: heads, HeadStride: int64(s.block) * row, TokenStride: row, RowBytes: row,
				})
			}
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func (s shape) peer() session.Peer { return session.Peer{Host: s.host, Handshake: 1, Notify: 2} }

func (s shape) config() session.Config {
	return session.Config{
		Self: moriio.Agent{
			Version: 1, Epoch: s.epoch, Pairing: s.pairing, Role: s.role, Pool: "pool", Layout: s.layout(), Block: s.block,
			KVType: kvlayout.BF16, Model: "test", Mover: "mem", Address: []byte(s.host),
		},
		Geometry: s.geometry(), Engine: kvlayout.Simulator, Host: s.host, Handshake: 1, Notify: 2, Timeouts: timeouts,
	}
}

// metadata is what the side answers a handshake with.
func (s shape) metadata(base uint32) *moriio.Metadata {
	self := s.config().Self
	self.Ranks = s.ranks(base)
	return &moriio.Metadata{EngineID: s.host, PDPool: &self}
}

func newMachine(cfg session.Config, role kvlayout.Role) session.Machine {
	if role == kvlayout.Prefill {
		return session.NewPrefill(cfg)
	}
	return session.NewDecode(cfg)
}

func scheduler(dp int) session.Conn { return session.Conn{Kind: kvproto.Scheduler, DP: dp} }

func worker(dp, tp int) session.Conn { return session.Conn{Kind: kvproto.Worker, DP: dp, TP: tp} }
