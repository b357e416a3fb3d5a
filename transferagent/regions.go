package transferagent

import (
	"fmt"
	"slices"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// checkRegions refuses regions of a rank that are not what the pod's
// configuration promises to peers, that leave its memory of size bytes, or that
// share bytes with each other.
func checkRegions(cfg *agentconfig.Config, hello kvproto.Hello, size int64, regions []kvlayout.Region) error {
	if len(regions) != cfg.KV.Layers {
		return fmt.Errorf("%d regions were handed over, %s has %d layers", len(regions), cfg.KV.Model, cfg.KV.Layers)
	}
	seen := make([]bool, cfg.KV.Layers)
	for _, r := range regions {
		if err := checkRegion(cfg, hello, size, r); err != nil {
			return err
		}
		if seen[r.Layer] {
			return fmt.Errorf("layer %d was handed over twice", r.Layer)
		}
		seen[r.Layer] = true
	}
	return checkApart(regions)
}

func checkRegion(cfg *agentconfig.Config, hello kvproto.Hello, size int64, r kvlayout.Region) error {
	if r.Layer < 0 || r.Layer >= cfg.KV.Layers {
		return fmt.Errorf("layer %d is outside the %d layers of %s", r.Layer, cfg.KV.Layers, cfg.KV.Model)
	}
	if err := r.Validate(); err != nil {
		return err
	}
	heads := kvlayout.HeadsOf(cfg.KV, cfg.Layout, hello.TP)
	row := kvlayout.RowBytes(cfg.KV, cfg.KVType)
	switch {
	case r.Blocks != hello.Blocks:
		return fmt.Errorf("layer %d: %d blocks, the connection announced %d", r.Layer, r.Blocks, hello.Blocks)
	case r.BlockTokens != cfg.Block:
		return fmt.Errorf("layer %d: blocks of %d tokens, the pool's have %d", r.Layer, r.BlockTokens, cfg.Block)
	case r.Heads != heads:
		return fmt.Errorf("layer %d: KV heads %s, rank %d of tp %d holds %s", r.Layer, r.Heads, hello.TP, cfg.Layout.TP, heads)
	case r.RowBytes != row:
		return fmt.Errorf("layer %d: rows of %d bytes, %s in %s has %d", r.Layer, r.RowBytes, cfg.KV.Model, cfg.KVType, row)
	case r.End() > size:
		return fmt.Errorf("layer %d ends at byte %d of a memory of %d bytes", r.Layer, r.End(), size)
	}
	return nil
}

// checkApart refuses regions that share bytes.
func checkApart(regions []kvlayout.Region) error {
	byOffset := slices.SortedFunc(slices.Values(regions), func(a, b kvlayout.Region) int {
		if a.Offset != b.Offset {
			return int(min(max(a.Offset-b.Offset, -1), 1))
		}
		return a.Layer - b.Layer
	})
	for i, a := range byOffset {
		for _, b := range byOffset[i+1:] {
			if b.Offset >= a.End() {
				break
			}
			if overlap(a, b) {
				return fmt.Errorf("layers %d and %d overlap in memory", a.Layer, b.Layer)
			}
		}
	}
	return nil
}

// stride is one dimension of a region: count elements, step bytes apart.
type stride struct {
	count int
	step  int64
}

// strides lists a region's dimensions of more than one element, outermost first.
func strides(r kvlayout.Region) []stride {
	var out []stride
	for _, s := range []stride{{r.Blocks, r.BlockStride}, {r.Heads.Count, r.HeadStride}, {r.BlockTokens, r.TokenStride}} {
		if s.count > 1 {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b stride) int { return int(min(max(b.step-a.step, -1), 1)) })
	return out
}

// overlap reports whether two valid regions may share a byte. Regions nested in
// each other are told apart where their strides agree, as they do for layers of
// one allocation; nests of unlike strides count as overlapping.
func overlap(a, b kvlayout.Region) bool {
	return nestsMeet(b.Offset-a.Offset, strides(a), strides(b), a.RowBytes, b.RowBytes)
}

// nestsMeet looks at two nests of which the second starts distance bytes after the first.
func nestsMeet(distance int64, a, b []stride, rowA, rowB int64) bool {
	if distance >= span(a, rowA) || distance+span(b, rowB) <= 0 {
		return false
	}
	if len(a) == 0 || len(b) == 0 || a[0].step != b[0].step {
		return true
	}
	// An element is no longer than the step, so only the two nearest elements can meet.
	step := a[0].step
	near := (distance%step + step) % step
	return nestsMeet(near, a[1:], b[1:], rowA, rowB) || nestsMeet(near-step, a[1:], b[1:], rowA, rowB)
}

// span is the number of bytes from the first to the last of a nest.
func span(s []stride, row int64) int64 {
	for _, d := range s {
		row += int64(d.count-1) * d.step
	}
	return row
}

// layoutRegion is a region of the KV socket in kvlayout's terms.
func layoutRegion(r kvproto.Region) kvlayout.Region {
	return kvlayout.Region{
		Layer:       r.Layer,
		Offset:      r.Offset,
		BlockStride: r.BlockStride,
		Blocks:      r.Blocks,
		BlockTokens: r.BlockTokens,
		Heads:       kvlayout.HeadRange{First: r.HeadFirst, Count: r.HeadCount},
		HeadStride:  r.HeadStride,
		TokenStride: r.TokenStride,
		RowBytes:    r.RowBytes,
	}
}
