package kvlayout

import (
	"cmp"
	"fmt"
	"slices"
)

func sglangDecodeCP(v *view, role Role) []finding {
	cp := v.side(role).PCP
	if v.Engine != SGLang || role != Decode || cp < 2 {
		return nil
	}
	return v.bound(role, featureSGLangDecodeCP, finding{
		field: "decode.args", message: fmt.Sprintf("decode has attention context parallelism of %d", cp), fix: "remove --attn-cp-size on decode",
	})
}

func sglangCPDCP(v *view, role Role) []finding {
	cp, dcp := v.side(role).PCP, v.layout(role).DCP
	if v.Engine != SGLang || cp < 2 || dcp == 1 {
		return nil
	}
	return []finding{{
		field: string(role) + ".args", message: fmt.Sprintf("%s has attention context parallelism of %d and dcp %d", role, cp, dcp),
		fix: "remove one of --attn-cp-size and --dcp-size",
	}}
}

func sglangDCPBackend(v *view, role Role) []finding {
	l := v.layout(role)
	if v.Engine != SGLang || role != Decode || l.DCP == 1 {
		return nil
	}
	return v.bound(role, featureSGLangDCP, finding{
		field: "engine.version", message: fmt.Sprintf("decode dcp %d with transfer backend mori", l.DCP),
		ways: v.dcpWays(Decode, 1), fix: ", or use an engine.image of SGLang 0.5.22 or later",
	})
}

func sglangDCPHeads(v *view, role Role) []finding {
	l := v.layout(role)
	if v.Engine != SGLang || !v.heads.known || v.heads.query < 1 || l.DCP == 1 || v.heads.query%l.DCP == 0 {
		return nil
	}
	field := layoutField(role, "dcp")
	return []finding{{
		field: field, message: fmt.Sprintf("%s dcp %d does not divide %d attention heads", role, l.DCP, v.heads.query),
		ways: v.dcpWays(role, largest(l.DCP, func(n int) bool { return v.heads.query%n == 0 && l.TP%n == 0 })),
	}}
}

func ppPair(v *view) []finding {
	p, d := v.prefill.PP, v.decode.PP
	if v.Engine != SGLang || d == 1 || d == p {
		return nil
	}
	return []finding{{
		field: layoutField(Decode, "pp"), message: fmt.Sprintf("prefill has %d pipeline stages and decode %d", p, d), fix: "remove --pp-size on decode",
	}}
}

func sglangPrefillCP(v *view) []finding {
	if v.Engine != SGLang || v.Prefill.PCP < 2 || v.decode.DCP == 1 || v.prefill.DCP > 1 {
		return nil
	}
	return []finding{{
		field: "prefill.args", message: fmt.Sprintf("prefill has attention context parallelism of %d, and decode dcp %d", v.Prefill.PCP, v.decode.DCP),
		ways: []way{{set("decode.layout.dcp", 1)}}, fix: ", or remove --attn-cp-size on prefill",
	}}
}

func sglangDCPMLA(v *view) []finding {
	if v.Engine != SGLang || v.decode.DCP == 1 || !v.headSharded() {
		return nil
	}
	return v.bound(Decode, featureSGLangDCPHeads, finding{
		field: layoutField(Decode, "dcp"), message: fmt.Sprintf("decode dcp %d on a model without MLA", v.decode.DCP),
		ways: v.dcpWays(Decode, 1),
	})
}

// sglangHeads returns the unequal attention TP of a head-sharded model on SGLang.
func (v *view) sglangHeads() (prefill, decode int, unequal bool) {
	p, d, unequal := v.unequalTP()
	return p, d, v.Engine == SGLang && unequal && v.headSharded()
}

func sglangWindowTP(v *view) []finding {
	p, d, unequal := v.sglangHeads()
	if !unequal || !v.windowed() || v.Prefill.NoHybrid {
		return nil
	}
	return v.bound(Prefill, featureSGLangWindowTP, finding{
		field: tpField(Decode), message: fmt.Sprintf("prefill attention tp %d and decode %d, on a model with sliding windows", p, d),
		ways: v.equalTP(),
	})
}

func sglangIndexTP(v *view) []finding {
	if v.Engine != SGLang || !v.indexed() || !v.headSharded() {
		return nil
	}
	if v.prefill.PP > 1 {
		return v.bound(Prefill, featureSGLangIndexTP, finding{
			field:   layoutField(Prefill, "pp"),
			message: fmt.Sprintf("prefill has %d pipeline stages, on a model with an indexer", v.prefill.PP), fix: "remove --pp-size on prefill",
		})
	}
	p, d, unequal := v.unequalTP()
	if !unequal {
		return nil
	}
	return v.bound(Prefill, featureSGLangIndexTP, finding{
		field: tpField(Decode), message: fmt.Sprintf("prefill attention tp %d and decode %d, on a model with an indexer", p, d),
		ways: v.equalTP(),
	})
}

func sglangStateTP(v *view) []finding {
	p, d, unequal := v.unequalTP()
	if v.Engine != SGLang || !unequal || !v.states() {
		return nil
	}
	return []finding{{
		field: tpField(Decode), message: fmt.Sprintf("prefill attention tp %d and decode %d, on a model with recurrent state", p, d),
		ways: v.equalTP(),
	}}
}

// sglangHeadCopies: decode ranks that copy a head each took another one, where a prefill
// rank has several.
func sglangHeadCopies(v *view) []finding {
	p, d, unequal := v.sglangHeads()
	if !unequal {
		return nil
	}
	at := slices.IndexFunc(v.heads.kv, func(heads int) bool { return p < heads && heads < d })
	if at < 0 {
		return nil
	}
	return v.bound(Prefill, featureSGLangHeadCopies, finding{
		field:   "engine.version",
		message: fmt.Sprintf("prefill attention tp %d and decode %d, with copies of %d KV heads on decode alone", p, d, v.heads.kv[at]),
		ways:    v.equalTP(), fix: ", or use an engine.image of SGLang 0.5.21 or later",
	})
}

func sglangHeadsTP(v *view) []finding {
	p, d, unequal := v.sglangHeads()
	if !unequal {
		return nil
	}
	return []finding{{
		field: tpField(Decode), message: fmt.Sprintf("prefill attention tp %d and decode %d, on a model of %d KV heads", p, d, v.heads.kv[0]),
		ways: v.equalTP(),
	}}
}

func sglangSparseDCP(v *view, role Role) []finding {
	dcp := v.layout(role).DCP
	if v.Engine != SGLang || dcp == 1 || !v.indexed() || v.headSharded() {
		return nil
	}
	field := layoutField(role, "dcp")
	return v.bound(role, featureSGLangSparseDCP, finding{
		field: field, message: fmt.Sprintf("%s dcp %d on a model with sparse attention", role, dcp), ways: v.dcpWays(role, 1),
	})
}

// kvFormat: DeepSeek-V4's cache of trtllm has 512 bytes a token, and the others' 584.
func kvFormat(v *view) []finding {
	p, d := cmp.Or(v.Prefill.KVFormat, "auto"), cmp.Or(v.Decode.KVFormat, "auto")
	if v.Engine != SGLang || p == d {
		return nil
	}
	fd := finding{
		field: "decode.args", message: fmt.Sprintf("prefill has --dsv4-attn-backend %s and decode %s", p, d),
		fix: "give one --dsv4-attn-backend on both sides",
	}
	if p != "trtllm" && d != "trtllm" {
		fd.severity, fd.reason = Warn, "whether these store a token alike is not known"
	}
	return []finding{fd}
}

func sglangSpeculation(v *view) []finding {
	p, d := v.Prefill.Speculation, v.Decode.Speculation
	if v.Engine != SGLang || (p == "") == (d == "") {
		return nil
	}
	role, method := Prefill, p
	if p == "" {
		role, method = Decode, d
	}
	return []finding{{
		field: string(role) + ".args", message: fmt.Sprintf("%s alone has speculative decoding (%s)", role, method),
		fix: "set it on both sides, or on neither",
	}}
}
