package engine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// Feature is something that an engine does from some release on, or up to one.
type Feature string

// ReadModeFromEnv says that VLLM_MORIIO_CONNECTOR_READ_MODE decides the mode of MoRIIO
// in vLLM, and read_mode in the extra configuration of its connector does not.
const ReadModeFromEnv Feature = "read mode from the environment"

// Features of SGLang, with the transfer backend mori where one matters.
const (
	// MoriDCP: decode may have DCP.
	MoriDCP Feature = "dcp with mori"
	// DecodeCacheDCP: decode with DCP may keep a radix cache or a hierarchical cache.
	DecodeCacheDCP Feature = "decode caches with dcp"
	// AttentionDPSize: --attn-dp-size, in place of --dp-size with --enable-dp-attention.
	AttentionDPSize Feature = "--attn-dp-size"
)

// Fact bounds a feature by releases of its engine.
type Fact struct {
	Feature Feature
	Engine  kvlayout.Engine
	// Since is the first release that has it. It is "" where none is known, and
	// where all releases up to Until had it.
	Since string
	// Without is the newest release known to lack it, where it is not the one before
	// Since.
	Without string
	// Until is the last release that has it; "" while it is there.
	Until string
	// Source says where this was read.
	Source string
}

// Facts is the table of what reading a command line depends on; what rules depend on
// is in kvlayout.Facts. All of it was read in released packages; a release between
// Without and Since was not looked at.
func Facts() []Fact {
	sglang := func(f Feature, since, without, source string) Fact {
		return Fact{f, kvlayout.SGLang, since, without, "", source}
	}
	return []Fact{
		{Feature: ReadModeFromEnv, Engine: kvlayout.VLLM, Until: "0.22.0", Source: "moriio_common.py asks envs.py in 0.22.0, and the extra configuration alone in 0.23.0"},
		sglang(MoriDCP, "0.5.22", "0.5.21", "pd_disaggregation_hook.py takes mori with --dcp-size in 0.5.22, and refuses it in 0.5.21"),
		sglang(DecodeCacheDCP, "0.5.21", "0.5.20", "pd_disaggregation_hook.py refuses both caches with --dcp-size in 0.5.20, and neither in 0.5.21"),
		sglang(AttentionDPSize, "0.5.22", "0.5.21", "fields/parallel.py of 0.5.22; 0.5.21 has no such argument"),
	}
}

// Support is what is known of a release.
type Support int

// The answers of Supports.
const (
	Unknown Support = iota
	Lacks
	Has
)

// Supports says whether a release of the engine has the feature. Unknown are a
// version that can't be read, a pre-release of the first release that has it, and
// releases of which nobody knows.
func Supports(kind kvlayout.Engine, version string, f Feature) Support {
	facts := Facts()
	i := slices.IndexFunc(facts, func(fact Fact) bool { return fact.Feature == f && fact.Engine == kind })
	v, pre, ok := release(version)
	if i < 0 || !ok {
		return Unknown
	}
	return facts[i].of(v, pre)
}

func (f Fact) of(v [4]int, pre bool) Support {
	if f.Until != "" {
		if compareRelease(v, f.Until) <= 0 {
			return Has
		}
		return Lacks
	}
	if f.Since != "" {
		switch c := compareRelease(v, f.Since); {
		case c > 0 || c == 0 && !pre:
			return Has
		case c == 0:
			return Unknown
		}
	}
	if f.Without != "" && compareRelease(v, f.Without) <= 0 {
		return Lacks
	}
	return Unknown
}

func compareRelease(v [4]int, other string) int {
	o, _, _ := release(other)
	return slices.Compare(v[:], o[:])
}

// release reads the numbers of a version such as 0.33.0, v0.5.13.post1 or
// 0.33.0rc1; pre says that it comes before the release of these numbers. Anything
// that does not begin with two numbers is none.
func release(version string) (numbers [4]int, pre, ok bool) {
	rest := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(version)), "v")
	parts := 0
	for parts < len(numbers) {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil {
			return numbers, false, false
		}
		numbers[parts], rest = n, rest[digits:]
		parts++
		if len(rest) < 2 || rest[0] != '.' || rest[1] < '0' || rest[1] > '9' {
			break
		}
		rest = rest[1:]
	}
	return numbers, prerelease.MatchString(rest), parts >= 2
}
