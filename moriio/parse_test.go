package moriio_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

// samples are encoded messages that fill every field, with their parsers.
func samples() map[string]sample {
	all := map[string]sample{
		"metadata": {sampleMetadata(), parseMetadata},
		"layer map": {
			moriio.LayerMap{{Name: "b", Pieces: [][]byte{{1}, nil}}, {Name: "a"}}, parseLayerMap,
		},
		"registration": {
			&moriio.Registration{
				Role: kvlayout.Decode, HTTPAddress: "fd00::1:8100", ZMQAddress: moriio.FormatZMQAddress("fd00::1", 1, 65535),
				DPSize: 8, TPSize: 1, TransferMode: kvlayout.Read, PDPool: sampleInstance(),
			}, parseRegistration,
		},
	}
	for name, m := range notifications() {
		all[name] = sample{m, moriio.ParseNotify}
	}
	return all
}

type sample struct {
	message interface{ Append([]byte) []byte }
	parse   func([]byte) (any, error)
}

func TestRoundTrip(t *testing.T) {
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			got, err := s.parse(s.message.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(s.message), got); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTruncatedPrefixes(t *testing.T) {
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			whole := s.message.Append(nil)
			for n := range whole {
				wantReason(t, errorOf(s.parse(whole[:n])), moriio.Truncated)
			}
			wantReason(t, errorOf(s.parse(append(whole, 0))), moriio.Malformed)
		})
	}
}

func TestUnknownKeysAreIgnored(t *testing.T) {
	for name, s := range samples() {
		if name == "layer map" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got, err := s.parse(withKeys(s.message.Append(nil)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(s.message), got); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
		})
	}
}

// withKeys puts unknown keys with values of every family before the others.
func withKeys(b []byte) []byte {
	n, rest, _ := msgp.ReadMapHeaderBytes(b)
	out := msgp.AppendMapHeader(nil, n+4)
	out = msgp.AppendFloat64(msgp.AppendString(out, "x1"), math.Pi)
	out = msgp.AppendNil(msgp.AppendString(out, "x2"))
	out, _ = msgp.AppendIntf(msgp.AppendString(out, "x3"), []any{map[string]any{"a": []any{1, "b", []byte{2}, true}}})
	out = msgp.AppendString(out, "x4")
	// Nested deeper than any stack of ours would bear.
	out = append(out, bytes.Repeat([]byte{0x91}, 1<<20)...)
	out = append(out, 0xc0)
	return append(out, rest...)
}

func errorOf(_ any, err error) error { return err }

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var e *moriio.Error
	if !errors.As(err, &e) || e.Reason() != reason {
		t.Fatalf("error is %v, want the reason %s", err, reason)
	}
}

func TestRefused(t *testing.T) {
	ints := func(n int) []byte {
		b := msgp.AppendArrayHeader(nil, uint32(n))
		for range n {
			b = append(b, 0)
		}
		return b
	}
	text := func(s string) []byte { return msgp.AppendString(nil, s) }
	for _, tc := range []struct {
		name   string
		b      []byte
		reason string
	}{
		{"empty", nil, moriio.Truncated},
		{"one byte is a number", []byte("t"), moriio.Malformed},
		{"not UTF-8", []byte{0xc1, 0xff, 0xfe}, moriio.Malformed},
		{"control characters", []byte("tx\x001"), moriio.Malformed},
		{"long plain text", bytes.Repeat([]byte("x"), moriio.MaxString+1), moriio.Malformed},
		{"array", []byte{0x91, 0x01}, moriio.Malformed},
		{"empty map", []byte{0x80}, moriio.UnknownType},
		{"unknown type", message("type", text("hello"), "transfer_id", text("tx-1")), moriio.UnknownType},
		{"long unknown type", message("type", text(strings.Repeat("x", 1<<20))), moriio.UnknownType},
		{"type as bin", message("type", msgp.AppendBytes(nil, []byte("release")), "transfer_id", text("tx-1")), moriio.UnknownType},
		{"key that is a number", []byte{0x81, 0x01, 0x02}, moriio.BadField},
		{"key twice", message("type", text("release"), "type", text("release")), moriio.BadField},
		{"no transfer", message("type", text("release")), moriio.BadField},
		{"empty transfer", message("type", text("release"), "transfer_id", text("")), moriio.BadField},
		{"transfer as bin", message("type", text("write_done"), "transfer_id", msgp.AppendBytes(nil, []byte("tx-1"))), moriio.BadField},
		{"transfer not UTF-8", message("type", text("write_done"), "transfer_id", text("\xff\xfe")), moriio.BadField},
		{"long transfer", message("type", text("write_done"), "transfer_id", text(strings.Repeat("x", moriio.MaxString+1))), moriio.TooLong},
		{"no consumer", message("type", text("release"), "transfer_id", text("tx-1"), "consumer_tp_size", []byte{0}), moriio.BadField},
		{"negative consumer", message("type", text("release"), "transfer_id", text("tx-1"), "consumer_tp_size", []byte{0xff}), moriio.BadField},
		{"whole float", message("type", text("release"), "transfer_id", text("tx-1"), "consumer_tp_size", msgp.AppendFloat64(nil, 8)), moriio.BadField},
		{"no blocks", message("type", text("remote_blocks"), "transfer_id", text("tx-1"), "decode_rank", []byte{0}), moriio.BadField},
		{"blocks over the cap", remoteBlocks(ints(moriio.MaxBlocks + 1)), moriio.TooLong},
		{"groups over the cap", remoteBlocks(groups(moriio.MaxGroups+1, ints(1))), moriio.TooLong},
		{"blocks of groups over the cap", remoteBlocks(groups(2, ints(moriio.MaxBlocks/2+1))), moriio.TooLong},
		{"group that is a number", remoteBlocks([]byte{0x92, 0x91, 1, 1}), moriio.BadField},
		{"number that is a group", remoteBlocks([]byte{0x92, 1, 0x91, 1}), moriio.BadField},
		{"negative block", remoteBlocks([]byte{0x91, 0xff}), moriio.BadField},
		{"block over 31 bits", remoteBlocks(msgp.AppendUint64([]byte{0x91}, 1<<31)), moriio.BadField},
		{"block that wraps", remoteBlocks(msgp.AppendUint64([]byte{0x91}, 1<<32)), moriio.BadField},
		{"count of blocks that the message can't hold", append(remoteBlocks(nil), 0xdd, 0, 3, 0, 0), moriio.Truncated},
		{"map with more fields than any message", msgp.AppendMapHeader(nil, 65), moriio.TooLong},
		{"invalid byte", []byte{0x81, 0xa1, 'x', 0xc1}, moriio.Malformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantReason(t, errorOf(moriio.ParseNotify(tc.b)), tc.reason)
		})
	}
}

// message encodes a map of keys and encoded values.
func message(pairs ...any) []byte {
	b := msgp.AppendMapHeader(nil, uint32(len(pairs)/2))
	for i := 0; i < len(pairs); i += 2 {
		b = msgp.AppendString(b, pairs[i].(string))
		b = append(b, pairs[i+1].([]byte)...)
	}
	return b
}

func remoteBlocks(list []byte) []byte {
	return message("req_id", msgp.AppendString(nil, "r"), "transfer_id", msgp.AppendString(nil, "tx-1"),
		"decode_rank", []byte{0}, "block_notify_list", list)
}

func groups(n int, each []byte) []byte {
	return append(msgp.AppendArrayHeader(nil, uint32(n)), bytes.Repeat(each, n)...)
}

func TestRemoteBlocksWithoutType(t *testing.T) {
	got, err := moriio.ParseNotify(remoteBlocks([]byte{0x91, 7}))
	if err != nil {
		t.Fatal(err)
	}
	want := &moriio.RemoteBlocks{RequestID: "r", Transfer: "tx-1", Blocks: []int32{7}}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("parsed (-want +got):\n%s", diff)
	}
}

// parsed reads a notification of type T.
func parsed[T any](b []byte) (T, error) {
	var none T
	m, err := moriio.ParseNotify(b)
	if err != nil {
		return none, err
	}
	t, ok := m.(T)
	if !ok {
		return none, fmt.Errorf("a %T", m)
	}
	return t, nil
}

func TestEmptyBlocks(t *testing.T) {
	got, err := parsed[*moriio.RemoteBlocks](remoteBlocks([]byte{0x90}))
	if err != nil || got.Blocks != nil || got.Groups != nil {
		t.Errorf("parsed %+v, %v; want no blocks", got, err)
	}
}

func TestReleaseDefaultsToOneConsumer(t *testing.T) {
	got, err := parsed[*moriio.Release](message("type", msgp.AppendString(nil, "release"), "transfer_id", msgp.AppendString(nil, "tx-1")))
	if err != nil || got.ConsumerTP != 1 {
		t.Errorf("parsed %+v, %v; want ConsumerTP 1", got, err)
	}
}

func TestMetadataLimits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*moriio.Metadata)
		reason string
	}{
		{"base addresses", func(m *moriio.Metadata) { m.BaseAddresses = make([]uint64, 2*moriio.MaxLayers+1) }, moriio.TooLong},
		{"description", func(m *moriio.Metadata) { m.EngineDesc = make([]byte, moriio.MaxDesc+1) }, moriio.TooLong},
		{"address", func(m *moriio.Metadata) { m.PDPool.Address = make([]byte, moriio.MaxAddress+1) }, moriio.TooLong},
		{"ranks", func(m *moriio.Metadata) { m.PDPool.Ranks = make([]moriio.AgentRank, moriio.MaxRanks+1) }, moriio.TooLong},
		{"regions", func(m *moriio.Metadata) { m.PDPool.Ranks[0].Regions = make([]kvlayout.Region, moriio.MaxRegions+1) }, moriio.TooLong},
		{"layers", func(m *moriio.Metadata) {
			m.AttentionBlocks = map[string]int{}
			for i := range moriio.MaxLayers + 1 {
				m.AttentionBlocks[string(rune('a'+i))] = 1
			}
		}, moriio.TooLong},
		{"layer name", func(m *moriio.Metadata) {
			m.AttentionBlocks = map[string]int{strings.Repeat("l", moriio.MaxString+1): 1}
		}, moriio.TooLong},
		{"degree", func(m *moriio.Metadata) { m.PDPool.Layout.TP = moriio.MaxRanks + 1 }, moriio.BadField},
		{"negative blocks", func(m *moriio.Metadata) { m.NumBlocks = -1 }, moriio.BadField},
		{"negative offset", func(m *moriio.Metadata) { m.PDPool.Ranks[0].Regions[1].Offset = -5 }, moriio.BadField},
		{"role", func(m *moriio.Metadata) { m.PDPool.Role = "both" }, moriio.BadField},
		{"text", func(m *moriio.Metadata) { m.PDPool.Model = "\xff" }, moriio.BadField},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := sampleMetadata()
			tc.change(m)
			wantReason(t, errorOf(moriio.ParseMetadata(m.Append(nil))), tc.reason)
		})
	}
}

func TestMetadataNeedsSixFields(t *testing.T) {
	for _, field := range []string{"engine_id", "agent_metadata", "kv_caches_base_addr", "num_blocks", "block_len", "attn_backend_name"} {
		b := bytes.Replace(stockMetadata().Append(nil), []byte(field), []byte("x"+field[1:]), 1)
		var e *moriio.Error
		if _, err := moriio.ParseMetadata(b); !errors.As(err, &e) || e.Reason() != moriio.BadField || e.Field() != field {
			t.Errorf("without %s: %v", field, err)
		}
	}
}

func TestMessageLengthIsCapped(t *testing.T) {
	long := make([]byte, moriio.MaxMessage+1)
	long[0] = 0x80
	wantReason(t, errorOf(moriio.ParseNotify(long)), moriio.TooLong)
	wantReason(t, errorOf(moriio.ParseLayerMap(long)), moriio.TooLong)
}

func TestLayerMapRefusesDuplicates(t *testing.T) {
	m := moriio.LayerMap{{Name: "a"}, {Name: "a"}}
	wantReason(t, errorOf(moriio.ParseLayerMap(m.Append(nil))), moriio.BadField)
}

func TestLongTextIsCutAtARune(t *testing.T) {
	m := &moriio.WriteFailed{Transfer: "tx-1", PDPool: &moriio.Report{Rule: "r", Text: "x" + strings.Repeat("ä", moriio.MaxString)}}
	got, err := parsed[*moriio.WriteFailed](m.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := "x" + strings.Repeat("ä", (moriio.MaxString-1)/2); got.PDPool.Text != want {
		t.Errorf("text has %d bytes, want %d", len(got.PDPool.Text), len(want))
	}
}

// A count that the message can't hold must not cost memory.
func TestCountsAllocateNothing(t *testing.T) {
	b := append(remoteBlocks(nil), 0xdd, 0, 4, 0, 0)
	allocated := testing.AllocsPerRun(100, func() {
		if _, err := moriio.ParseNotify(b); err == nil {
			t.Fatal("accepted")
		}
	})
	if allocated > 20 {
		t.Errorf("%v allocations for a refused message", allocated)
	}
}

// The memory that a peer's ranks take is bounded by their sum: a region needs many
// times the bytes that it has on the wire.
func TestRegionsOfAllRanksAreBounded(t *testing.T) {
	m := sampleMetadata()
	m.PDPool.Ranks = make([]moriio.AgentRank, moriio.MaxMemory/moriio.MaxRegions+1)
	for i := range m.PDPool.Ranks[1:] {
		m.PDPool.Ranks[i].Regions = make([]kvlayout.Region, moriio.MaxRegions)
	}
	if _, err := moriio.ParseMetadata(m.Append(nil)); err != nil {
		t.Fatal(err)
	}
	m.PDPool.Ranks[len(m.PDPool.Ranks)-1].Regions = make([]kvlayout.Region, 1)
	_, err := moriio.ParseMetadata(m.Append(nil))
	wantReason(t, err, moriio.TooLong)
}

// The longest message that a peer may send costs a few times its length, whatever it
// is made of.
func TestHostileMetadataCostsLittle(t *testing.T) {
	m := sampleMetadata()
	m.PDPool.Ranks = make([]moriio.AgentRank, moriio.MaxMemory/moriio.MaxRegions)
	for i := range m.PDPool.Ranks {
		m.PDPool.Ranks[i].Regions = make([]kvlayout.Region, moriio.MaxRegions)
	}
	m.BaseAddresses = make([]uint64, 2*moriio.MaxLayers)
	m.HeadLayouts, m.StateLayouts, m.AttentionBlocks = map[string][]int{}, map[string][]int{}, map[string]int{}
	for i := range moriio.MaxLayers {
		name := strings.Repeat("x", 8) + strconv.Itoa(i)
		m.HeadLayouts[name], m.StateLayouts[name], m.AttentionBlocks[name] = make([]int, 64), make([]int, 64), 1
	}
	b := m.Append(nil)
	if len(b) > moriio.MaxMessage {
		t.Fatalf("%d bytes", len(b))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := moriio.ParseMetadata(b); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	const most = 16 << 20
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("%d bytes of metadata cost %d", len(b), got)
	}
}
