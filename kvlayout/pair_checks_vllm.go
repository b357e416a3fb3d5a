package kvlayout

import (
	"cmp"
	"fmt"
	"path"
	"strings"
)

// blockTokens is the block size of a side as its engine will have it: models with
// recurrent state may get a larger one than is asked for, or than the engine's own
// where none is. 0 is not known.
func (v *view) blockTokens(role Role) int {
	if !v.states() || !v.vllmRules() {
		return v.side(role).BlockSize
	}
	p, err := v.Model.Pool(v.cache(role))
	if err != nil {
		return 0
	}
	return p.BlockTokens
}

func interleaveIndexer(v *view) []finding {
	l, b := v.decode, v.blockTokens(Decode)
	if !v.vllmRules() || !v.dealt() || !v.indexed() || b < 1 || l.Interleave == b {
		return nil
	}
	field := layoutField(Decode, "interleave")
	return []finding{{
		field: field, message: fmt.Sprintf("decode interleave %d and blocks of %d tokens, on a model with an indexer", l.Interleave, b),
		ways: []way{{set(field, b)}},
	}}
}

// largePiece is the length in bytes from which scattered writes come near to what a
// card does with long ones (MoRI's published table: 12 GB/s at 4 KiB, 41 at 64 KiB).
const largePiece = 16 << 10

func interleavePieces(v *view) []finding {
	l, b := v.decode, v.blockTokens(Decode)
	row := v.latentRow()
	if !v.vllmConnector() || v.Backend != RDMA || !v.dealt() || b <= l.Interleave || row == 0 || row*int64(l.Interleave) >= largePiece {
		return nil
	}
	field := layoutField(Decode, "interleave")
	return []finding{{
		field: field, message: fmt.Sprintf("decode interleave %d makes pieces of %d bytes", l.Interleave, row*int64(l.Interleave)),
		ways: []way{{set(field, b)}}, fix: ", a block",
	}}
}

// latentRow is the size of a token of one MLA layer in bytes; 0 not known.
func (v *view) latentRow() int64 {
	m, ok := v.model()
	if !ok {
		return 0
	}
	for _, g := range m.Groups {
		if g.Kind == FullAttention && g.Attention.Kind == MLA {
			return g.Attention.rankRowBytes(v.cache(Decode).kvType(m), 1)
		}
	}
	return 0
}

// modelSame refuses models that the catalog knows to cache differently. Other
// names, and revisions, may be copies or quantizations of the same.
func modelSame(v *view) []finding {
	p, d := v.Prefill, v.Decode
	if p.Model == "" || d.Model == "" {
		return nil
	}
	fd := finding{field: "decode.args", fix: "name the model once, in model.name"}
	pName, pRevision := hubName(p.Model, p.Revision)
	dName, dRevision := hubName(d.Model, d.Revision)
	switch {
	case !strings.EqualFold(pName, dName):
		fd.message = fmt.Sprintf("prefill serves %s and decode %s", p.Model, d.Model)
		mp, known := LookupModel(pName)
		md, alsoKnown := LookupModel(dName)
		if !known || !alsoKnown || sameCaches(mp, md) {
			fd.severity = Warn
			fd.reason = "a cache is of use to the model that made it, and whether these are copies of one is not known"
		}
	case pRevision != dRevision && pRevision != "" && dRevision != "":
		fd.message = fmt.Sprintf("prefill serves revision %s of %s and decode %s", pRevision, pName, dRevision)
		fd.severity = Warn
		fd.fix = "use one revision"
	default:
		return nil
	}
	return []finding{fd}
}

// hubName is the name and the revision of a model that is loaded from a cache of the
// Hugging Face hub, .../models--OWNER--NAME/snapshots/REVISION; other names stay.
func hubName(model, revision string) (name, rev string) {
	model = path.Clean(model)
	folder, snapshot := path.Split(model)
	if repo := path.Base(path.Dir(path.Clean(folder))); path.Base(folder) == "snapshots" && strings.HasPrefix(repo, "models--") {
		return strings.ReplaceAll(strings.TrimPrefix(repo, "models--"), "--", "/"), snapshot
	}
	return model, revision
}

func sameCaches(a, b Model) bool {
	if a.AttentionHeads != b.AttentionHeads || len(a.Groups) != len(b.Groups) {
		return false
	}
	for i := range a.Groups {
		g, h := a.Groups[i], b.Groups[i]
		if g.Kind != h.Kind || g.Layers != h.Layers || g.Attention != h.Attention || g.State.Bytes(1, 0) != h.State.Bytes(1, 0) {
			return false
		}
	}
	return true
}

func attentionPair(v *view) []finding {
	p, d := v.Prefill.Attention, v.Decode.Attention
	if p == "" || d == "" || strings.EqualFold(p, d) {
		return nil
	}
	return []finding{{
		field: "decode.args", message: fmt.Sprintf("prefill uses attention backend %s and decode %s", p, d),
		fix: "use one attention backend on both sides",
	}}
}

func readDP(v *view) []finding {
	p, d := v.prefill.DP, v.decode.DP
	if !v.vllmConnector() || v.Mode != Read || p == d {
		return nil
	}
	return v.bound(Decode, featureReadDP, finding{
		field: "engine.version", message: fmt.Sprintf("prefill dp %d and decode dp %d in Read mode", p, d),
		fix: "use an engine.image of vLLM 0.27.0 or later",
	})
}

func hybridWrite(v *view) []finding {
	if !v.vllmConnector() || v.Mode != Write || !v.states() {
		return nil
	}
	return v.bound(Prefill, featureWriteState, finding{
		field: "engine.version", message: "a model with recurrent state in Write mode",
		fix: "use an engine.image of vLLM 0.33.0 or later",
	})
}

func recurrentTP(v *view) []finding {
	p, d, unequal := v.unequalTP()
	if !unequal || !v.vllmConnector() || v.Mode != Read || !v.states() {
		return nil
	}
	return []finding{{
		field: tpField(Decode), message: fmt.Sprintf("prefill tp %d and decode tp %d in Read mode, on a model with recurrent state", p, d),
		ways: append(v.equalTP(), way{useWrite}),
	}}
}

// draftLayers: the side that writes or reads asks its peer for each of its own layers by
// name.
func draftLayers(v *view) []finding {
	asks := Prefill
	if v.Mode == Read {
		asks = Decode
	}
	own, peer := v.side(asks), v.side(asks.other())
	has, peerHas := own.cachesDrafts(), peer.cachesDrafts()
	if !v.vllm() || v.mover != MoverEngine || has == peerHas || has == Unknown || peerHas == Unknown {
		return nil
	}
	role, method := asks, own.Speculation
	if peerHas == Has {
		role, method = asks.other(), peer.Speculation
	}
	fd := finding{
		field:   string(role) + ".args",
		message: fmt.Sprintf("%s alone caches draft layers (%s), in %s mode", role, cmp.Or(method, "its own"), v.Mode),
		fix:     "set --speculative-config on both sides, or on neither",
	}
	if peerHas == Has {
		fd.severity, fd.reason = Warn, "nobody fills the caches of its draft layers for the prompt, so few of their tokens are taken"
		return []finding{fd}
	}
	return v.bound(asks, featureOneSidedDrafts, fd)
}

// cachesDrafts says whether speculation adds layers to the cache: those of the model's
// own and of a draft model do, what looks tokens up does not.
func (s Side) cachesDrafts() Support {
	switch s.Speculation {
	case "":
		if s.OwnDrafts {
			return Has
		}
		return Lacks
	case "ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator":
		return Lacks
	case "eagle", "eagle3", "mtp", "dflash", "dspark", "draft_model":
		return Has
	}
	if s.OwnDrafts {
		return Has
	}
	return Unknown
}

func readGroups(v *view) []finding {
	if !v.vllmConnector() || v.Mode != Read || v.Model == nil {
		return nil
	}
	lists := v.blockLists()
	if lists < 2 {
		return nil
	}
	return []finding{{
		field: "transfer.mode", message: fmt.Sprintf("a model with %d block lists in Read mode", lists),
		ways: []way{{useWrite}}, fix: ", or expect decode to start anew after a failed read",
	}}
}

// blockLists is the number of block lists of a sequence in vLLM's decode.
func (v *view) blockLists() int {
	lists := v.Model.AttentionGroups() + len(v.Model.States())
	if v.hybridOff(Decode) {
		return min(lists, 1+len(v.Model.States()))
	}
	return lists
}

func xgmiWait(v *view) []finding {
	if !v.vllmConnector() || v.Backend != XGMI {
		return nil
	}
	fs := v.bound(Prefill, featureXGMIWait, finding{
		field: "transfer.backend", message: "backend XGMI with vLLM's own connector", severity: Warn,
		fix: "set transfer.backend to RDMA, or use an engine.image with vllm-project/vllm#64330",
	})
	return fs
}

// writersPerRank is the number of prefill ranks that write to one decode rank.
func (v *view) writersPerRank() int {
	p, d, _ := v.unequalTP()
	if p <= d {
		return 1
	}
	writers := 1
	for _, kv := range v.heads.kv {
		writers = max(writers, min(p, kv)/min(d, kv))
	}
	if v.states() {
		writers = max(writers, p/d)
	}
	return writers
}

func mixedVersions(v *view) []finding {
	p, d := v.version(Prefill), v.version(Decode)
	prefill, decode := Supports(p, FeatureWriteFailed), Supports(d, FeatureWriteFailed)
	if !v.vllmConnector() || v.Mode != Write || prefill == decode || prefill == Unknown || decode == Unknown {
		return nil
	}
	fd := finding{
		field: "decode.image", message: fmt.Sprintf("prefill of vLLM %s and decode of vLLM %s", p, d), severity: Warn,
		reason: "vLLM from 0.33.0 on says when a write fails, which an older decode doesn't understand and an older prefill doesn't say",
		fix:    "use one engine.image on both sides",
	}
	if n := v.writersPerRank(); decode == Lacks && n > 1 {
		fd.severity, fd.reason = Refuse, ""
		fd.message += fmt.Sprintf(", with %d writers per decode rank", n)
	}
	return []finding{fd}
}
