package engine_test

import (
	"testing"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

func TestFieldFlag(t *testing.T) {
	for _, tc := range []struct {
		engine kvlayout.Engine
		field  string
		want   string
	}{
		{kvlayout.VLLM, "layout.dcp", "--decode-context-parallel-size"},
		{kvlayout.VLLM, "engine.blockSize", "--block-size"},
		{kvlayout.VLLM, "transfer.backend", "--kv-transfer-config"},
		{kvlayout.VLLM, "layout.expertParallel.all2all", ""},
		{kvlayout.VLLM, "replicas", ""},
		{kvlayout.SGLang, "layout.tp", "--tp-size"},
		{kvlayout.SGLang, "engine.blockSize", "--page-size"},
	} {
		if got := engine.FieldFlag(tc.engine, tc.field); got != tc.want {
			t.Errorf("%s %s: %q, want %q", tc.engine, tc.field, got, tc.want)
		}
	}
}
