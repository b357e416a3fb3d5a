package engine

import (
	"slices"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// EnvProblem is a variable that does nothing, or something else than it seems.
type EnvProblem struct {
	Index int // among the variables asked about
	Name  string
	// Dead says that the engine does not look at it.
	Dead bool
	// Stops says that the engine ends on it.
	Stops bool
	Text  string // what is wrong, one sentence
	Fix   string // what to do, as the end of a sentence
}

// envFact is a variable of the catalog.
type envFact struct {
	name string
	kind kvlayout.Engine // "" any
	// gone is the first release known not to look at it; "" one that does.
	gone string
	// bad says for which values it is a problem; nil for all.
	bad func(value string) bool
	// stops says that the engine ends on such a value.
	stops bool
	text  string
	fix   string
}

func envFacts() []envFact {
	isTrue := func(v string) bool { return slices.Contains([]string{"1", "true", "on", "yes"}, strings.ToLower(v)) }
	dead := func(name, gone, fix string) envFact {
		return envFact{name: name, kind: kvlayout.VLLM, gone: gone, text: "vLLM " + gone + " and later do not look at it", fix: fix}
	}
	return []envFact{
		dead(readModeVariable, "0.23.0", "set transfer.mode, which is read_mode of the connector"),
		dead("VLLM_MORIIO_QP_PER_TRANSFER", "0.23.0", "remove it: it is qp_per_transfer of the connector now"),
		dead("VLLM_MORIIO_POST_BATCH_SIZE", "0.23.0", "remove it: it is post_batch_size of the connector now"),
		dead("VLLM_MORIIO_NUM_WORKERS", "0.23.0", "remove it: it is num_workers of the connector now"),
		dead("VLLM_USE_V1", "0.22.0", "remove it"),
		dead("VLLM_ATTENTION_BACKEND", "0.22.0", "use --attention-backend"),
		dead("VLLM_ALL2ALL_BACKEND", "0.22.0", "use --all2all-backend"),
		dead("VLLM_ROCM_USE_AITER_PAGED_ATTN", "0.26.0", "remove it"),
		dead("VLLM_USE_AITER_TRITON_SILU_MUL", "0.22.0", "remove it"),
		{
			name: "VLLM_PORT", kind: kvlayout.VLLM, stops: true, bad: func(v string) bool { return strings.Contains(v, ":") },
			text: "vLLM stops on an address in it, as a Service named vllm sets it", fix: "set enableServiceLinks to false, or rename the Service",
		},
		{
			name: "PYTORCH_CUDA_ALLOC_CONF", kind: kvlayout.VLLM, stops: true,
			bad:  func(v string) bool { return strings.Contains(strings.ToLower(v), "expandable_segments:true") },
			text: "vLLM refuses a KV connector with expandable segments", fix: "remove expandable_segments",
		},
		{
			name: "MORI_IO_ENABLE_NOTIFICATION", bad: isTrue,
			text: "it overrules the engine, and MoRI's notifications fill the send queue under load", fix: "remove it",
		},
		{
			name: "MORI_DISABLE_AUTO_XGMI", bad: func(v string) bool { return strings.HasPrefix(v, "0") }, kind: kvlayout.VLLM,
			text: "a value that begins with 0 makes MoRI take xGMI by itself, whatever the backend", fix: "remove it, and set transfer.backend",
		},
		{
			name: "SGLANG_DISAGG_STAGING_BUFFER", kind: kvlayout.SGLang, bad: isTrue, stops: true,
			text: "SGLang refuses it with the transfer backend mori", fix: "remove it",
		},
	}
}

// CheckEnv finds the variables that the release of an engine ignores, and those
// whose value is a trap. An unknown version counts as the newest one known here.
func CheckEnv(kind kvlayout.Engine, version string, env []EnvVar) []EnvProblem {
	if kind == kvlayout.Simulator {
		return nil
	}
	var out []EnvProblem
	facts := envFacts()
	for i, e := range env {
		for _, f := range facts {
			if f.name != e.Name || f.kind != "" && f.kind != kind || f.bad != nil && !f.bad(e.Value) {
				continue
			}
			if f.gone != "" && before(version, f.gone) {
				continue
			}
			out = append(out, EnvProblem{Index: i, Name: e.Name, Dead: f.gone != "", Stops: f.stops, Text: f.text, Fix: f.fix})
		}
	}
	return out
}

// before says that a version is known to be older than a release.
func before(version, release string) bool {
	v, ok := kvlayout.ParseRelease(version)
	r, known := kvlayout.ParseRelease(release)
	return ok && known && v.Compare(r) < 0
}

// modeSaid says that nothing more is to be said of the variable with the mode: without
// a transfer there is no mode, and one that is not known was noted.
func (f *facts) modeSaid() bool {
	return f.in.Mode == "" || slices.ContainsFunc(f.notes, func(n Note) bool { return n.Kind == Unread && n.Field == "transfer.mode" })
}

func (f *facts) deadEnv() {
	for _, p := range CheckEnv(f.in.Engine, f.in.Version, f.in.Env) {
		if p.Name == "VLLM_PORT" || p.Name == readModeVariable && f.modeSaid() {
			continue // said with the port, or with the mode
		}
		kind := Remark
		if p.Stops {
			kind = Stops
		}
		f.keep(-1, kind, "", "%s: %s; %s", p.Name, p.Text, p.Fix)
		if n := len(f.notes); p.Index < len(f.launch.envPlaces) {
			f.notes[n-1].Place = f.launch.envPlaces[p.Index]
		}
	}
}
