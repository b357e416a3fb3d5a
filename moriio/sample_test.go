package moriio_test

import (
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

func sampleRegion(layer int) kvlayout.Region {
	return kvlayout.Region{
		Layer: layer, Offset: int64(layer) << 33, BlockStride: 73728, Blocks: 100, BlockTokens: 64,
		Heads: kvlayout.HeadRange{First: 2, Count: 4}, HeadStride: 512, TokenStride: 1152, RowBytes: 1152,
	}
}

func sampleMetadata() *moriio.Metadata {
	return &moriio.Metadata{
		EngineID: "10.0.0.1:6301", EngineDesc: []byte{1, 2}, BaseAddresses: []uint64{0x7f0000000000, 1<<64 - 1},
		NumBlocks: 100, BlockLen: 73728, Backend: "X",
		HeadLayouts:     map[string][]int{"l1": {8, 16, 512, 65536, 8192, 512, 0}, "l0": {8}},
		StateLayouts:    map[string][]int{"m0": {1048576, 1048576, 524288, 4096}},
		AttentionBlocks: map[string]int{"l0": 64, "l1": 64},
		DCP:             4, Interleave: 16,
		PDPool: &moriio.Agent{
			Version: moriio.AgentVersion, Epoch: 1<<63 + 5, Pairing: "0123456789abcdef", Role: kvlayout.Decode, Pool: "ns/pool",
			DPStart: 2, Layout: kvlayout.Layout{TP: 8, PP: 1, DP: 4, DPLocal: 2, DCP: 4, Interleave: 16},
			Block: 64, KVType: kvlayout.BF16, Model: "m", Mover: "tcp", Address: []byte("10.0.0.1:7001"),
			Ranks: []moriio.AgentRank{
				{DP: 2, TP: 0, Memory: 7, Regions: []kvlayout.Region{sampleRegion(0), sampleRegion(1)}},
				{DP: 2, TP: 1, Memory: 8},
			},
		},
	}
}

func sampleAllocation() *moriio.Allocation {
	return &moriio.Allocation{
		Epoch: 5, PeerEpoch: 6, Host: "10.0.0.2", Handshake: 6301, Notify: 61005,
		PrefillDP: 3, FirstToken: 16, Tokens: 1000, Hash: []byte{9, 8, 7},
	}
}

func sampleInstance() *moriio.Instance {
	return &moriio.Instance{
		Namespace: "ns", Pool: "pool", Pod: "pool-prefill-0", Pairing: "aa", Revision: "bb",
		Layout: kvlayout.Layout{TP: 4}, Block: 64, KVType: kvlayout.FP8, Model: "served", Agent: "10.0.0.1:20001", Draining: true,
	}
}

// notifications are messages that fill every field, by name.
func notifications() map[string]interface{ Append([]byte) []byte } {
	report := &moriio.Report{Epoch: 1, PeerEpoch: 9, WriterDP: 2, WriterTP: 3, ReaderTP: 4, Bytes: 1 << 40, Rule: "peer-gone", Text: "the peer is gone"}
	return map[string]interface{ Append([]byte) []byte }{
		"remote_blocks": &moriio.RemoteBlocks{
			RequestID: "r1", Transfer: "tx-1", Blocks: []int32{5, 6, 70000}, DecodeRank: 9, PDPool: sampleAllocation(),
		},
		"remote_blocks/groups": &moriio.RemoteBlocks{
			RequestID: "r1", Transfer: "tx-1", Blocks: []int32{5, 6}, Groups: [][]int32{{5, 6}, {9}, nil}, DecodeRank: 9,
		},
		"hello":        &moriio.Hello{Epoch: 1<<64 - 1},
		"write_done":   &moriio.WriteDone{Transfer: "tx-1", NumWriters: 2, PDPool: report},
		"write_failed": &moriio.WriteFailed{Transfer: "tx-1", PDPool: report},
		"release": &moriio.Release{
			Transfer: "tx-1", ConsumerTP: 8, PDPool: &moriio.Released{Epoch: 1, PeerEpoch: 9, Rule: "aborted", Text: "the client has left"},
		},
	}
}
