package moriio_test

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

// metadataHex are the six fields that every version of vLLM sends.
const metadataHex = "a9656e67696e655f6964ad31302e302e302e313a36333031ae6167656e745f6d65746164617461c4020102" +
	"b36b765f6361636865735f626173655f6164647291cf00007f0000000000aa6e756d5f626c6f636b7364" +
	"a9626c6f636b5f6c656ece00012000b16174746e5f6261636b656e645f6e616d65a158"

func stockMetadata() *moriio.Metadata {
	return &moriio.Metadata{
		EngineID: "10.0.0.1:6301", EngineDesc: []byte{1, 2}, BaseAddresses: []uint64{0x7f0000000000},
		NumBlocks: 100, BlockLen: 73728, Backend: "X",
	}
}

// Bytes that real senders of vLLM 0.32 and 0.33 have put on a socket.
func TestGolden(t *testing.T) {
	const remote = "a67265715f6964a27231ab7472616e736665725f6964a474782d31b1626c6f636b5f6e6f746966795f6c697374"
	const remoteType = "a474797065ad72656d6f74655f626c6f636b73"
	const transfer = "ab7472616e736665725f6964a474782d31"
	const release = "83a474797065a772656c65617365" + transfer + "b0636f6e73756d65725f74705f73697a65"
	const address = "ac687474705f61646472657373ad31302e302e302e313a38313030ab7a6d715f61646472657373d929" +
		"686f73743a31302e302e302e312c68616e647368616b653a363330312c6e6f746966793a3631303035"

	mla := stockMetadata()
	mla.AttentionBlocks = map[string]int{"l0": 64}
	heads := stockMetadata()
	heads.HeadLayouts = map[string][]int{"l0": {8, 16, 512, 65536, 8192, 512, 0}}
	heads.AttentionBlocks = map[string]int{"l0": 16}
	hybrid := stockMetadata()
	hybrid.BaseAddresses = []uint64{0x7f0000000000, 0x7f0000100000, 0x7f0000108000}
	hybrid.StateLayouts = map[string][]int{"l1": {1048576, 1048576, 524288, 4096, 4096, 8192}}
	hybrid.AttentionBlocks = map[string]int{"l0": 2048}

	for _, tc := range []struct {
		name    string
		hex     string
		message interface{ Append([]byte) []byte }
		parse   func([]byte) (any, error)
	}{
		{"metadata of 0.32", "86" + metadataHex, stockMetadata(), parseMetadata},
		{"metadata, MLA", "87" + metadataHex + "b5617474656e74696f6e5f626c6f636b5f73697a657381a26c3040", mla, parseMetadata},
		{
			"metadata, heads", "88" + metadataHex + "af6b765f686561645f6c61796f75747381a26c30970810cd0200ce00010000cd2000cd020000" +
				"b5617474656e74696f6e5f626c6f636b5f73697a657381a26c3010", heads, parseMetadata,
		},
		{
			"metadata, hybrid", "88a9656e67696e655f6964ad31302e302e302e313a36333031ae6167656e745f6d65746164617461c4020102" +
				"b36b765f6361636865735f626173655f6164647293cf00007f0000000000cf00007f0000100000cf00007f0000108000" +
				"aa6e756d5f626c6f636b7364a9626c6f636b5f6c656ece00012000b16174746e5f6261636b656e645f6e616d65a158" +
				"b36d616d62615f73746174655f6c61796f75747381a26c3196ce00100000ce00100000ce00080000cd1000cd1000cd2000" +
				"b5617474656e74696f6e5f626c6f636b5f73697a657381a26c30cd0800", hybrid, parseMetadata,
		},
		{
			"layer map", "82a26c3091c401aaa26c3192c401bbc401cc",
			moriio.LayerMap{{Name: "l0", Pieces: [][]byte{{0xaa}}}, {Name: "l1", Pieces: [][]byte{{0xbb}, {0xcc}}}},
			parseLayerMap,
		},
		{
			"remote_blocks", "85" + remote + "930506ccc8ab6465636f64655f72616e6b00" + remoteType,
			&moriio.RemoteBlocks{RequestID: "r1", Transfer: "tx-1", Blocks: []int32{5, 6, 200}}, moriio.ParseNotify,
		},
		{
			"remote_blocks, rank 9", "85" + remote + "930506ce00011170ab6465636f64655f72616e6b09" + remoteType,
			&moriio.RemoteBlocks{RequestID: "r1", Transfer: "tx-1", Blocks: []int32{5, 6, 70000}, DecodeRank: 9}, moriio.ParseNotify,
		},
		{
			"remote_blocks, hybrid", "85" + remote + "929205069109ab6465636f64655f72616e6b00" + remoteType,
			&moriio.RemoteBlocks{RequestID: "r1", Transfer: "tx-1", Blocks: []int32{5, 6}, Groups: [][]int32{{5, 6}, {9}}}, moriio.ParseNotify,
		},
		{"write_done", "82a474797065aa77726974655f646f6e65" + transfer, &moriio.WriteDone{Transfer: "tx-1"}, moriio.ParseNotify},
		{
			"write_done, two writers", "83a474797065aa77726974655f646f6e65" + transfer + "ab6e756d5f7772697465727302",
			&moriio.WriteDone{Transfer: "tx-1", NumWriters: 2}, moriio.ParseNotify,
		},
		{"write_failed", "82a474797065ac77726974655f6661696c6564" + transfer, &moriio.WriteFailed{Transfer: "tx-1"}, moriio.ParseNotify},
		{"release, READ", release + "08", &moriio.Release{Transfer: "tx-1", ConsumerTP: 8}, moriio.ParseNotify},
		{"release, WRITE", release + "01", &moriio.Release{Transfer: "tx-1", ConsumerTP: 1}, moriio.ParseNotify},
		{"plain id", "74782d31", &moriio.PlainID{Transfer: "tx-1"}, moriio.ParseNotify},
		{
			"registration of prefill", "86a474797065a150" + address + "a764705f73697a6501a774705f73697a6504ad7472616e736665725f6d6f6465a55752495445",
			&moriio.Registration{
				Role: kvlayout.Prefill, HTTPAddress: "10.0.0.1:8100", ZMQAddress: moriio.FormatZMQAddress("10.0.0.1", 6301, 61005),
				DPSize: 1, TPSize: 4, TransferMode: kvlayout.Write,
			}, parseRegistration,
		},
		{
			"registration of decode", "86a474797065a144" + address + "a764705f73697a6508a774705f73697a6501ad7472616e736665725f6d6f6465a452454144",
			&moriio.Registration{
				Role: kvlayout.Decode, HTTPAddress: "10.0.0.1:8100", ZMQAddress: moriio.FormatZMQAddress("10.0.0.1", 6301, 61005),
				DPSize: 8, TPSize: 1, TransferMode: kvlayout.Read,
			}, parseRegistration,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, err := hex.DecodeString(tc.hex)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.message.Append([]byte("before")); string(got) != "before"+string(want) {
				t.Errorf("Append wrote\n%x\nreal senders write\n%x", got[len("before"):], want)
			}
			got, err := tc.parse(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(tc.message), got); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
		})
	}
	if moriio.GetMetadata != "get_meta_msg" {
		t.Errorf("request is %q", moriio.GetMetadata)
	}
}

func parseMetadata(b []byte) (any, error)     { return moriio.ParseMetadata(b) }
func parseLayerMap(b []byte) (any, error)     { return moriio.ParseLayerMap(b) }
func parseRegistration(b []byte) (any, error) { return moriio.ParseRegistration(b) }
