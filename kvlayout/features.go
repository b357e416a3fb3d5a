package kvlayout

import (
	"slices"
	"strconv"
	"strings"
)

// feature is something that vLLM's MoRIIO connector can do from some release on.
type feature string

const (
	// featureWriteTP: prefill writes to a decode instance of another TP degree.
	featureWriteTP feature = "write between unequal tp"
	// featureDCPRelayout: a prefill without DCP feeds a decode instance with DCP.
	featureDCPRelayout feature = "dcp relayout"
)

// support is what a version is known to do.
type support int

const (
	supportUnknown support = iota
	supportNo
	supportYes
)

// featureFact bounds a feature by releases of vLLM, as read from the released
// packages 0.29.0, 0.32.0 and 0.33.0 (the newest on 2026-11-29).
type featureFact struct {
	feature feature
	since   string // first release that has it; "" none known
	without string // newest release known to lack it, where since is ""
	source  string
}

// featureFacts is the table of version-bound facts.
func featureFacts() []featureFact {
	return []featureFact{
		{
			feature: featureWriteTP, since: "0.33.0",
			source: "moriio_tp_mapping.py and kv_head_layouts, in the package of 0.33.0 and not of 0.32.0",
		},
		{
			feature: featureDCPRelayout, without: "0.33.0",
			source: "vllm-project/vllm#64722, nothing of which is in the package of 0.33.0",
		},
	}
}

// supports says whether the vLLM release has the feature. Unknown are a version
// that cannot be read, a pre-release of the first release that has the feature, and
// releases later than the newest known to lack it.
func supports(vllm string, f feature) support {
	v, ok := parseVersion(vllm)
	if !ok {
		return supportUnknown
	}
	for _, fact := range featureFacts() {
		if fact.feature != f {
			continue
		}
		if since, ok := parseVersion(fact.since); ok {
			return v.since(since)
		}
		if without, ok := parseVersion(fact.without); ok && slices.Compare(v.release[:], without.release[:]) <= 0 {
			return supportNo
		}
	}
	return supportUnknown
}

// version is a release number, and whether it is a release candidate, a beta or a
// development build before that release.
type version struct {
	release [4]int
	pre     bool
}

// parseVersion reads "0.33.0", "v0.33.0", "0.29", "0.33.0rc1", "0.33.0+rocm72",
// "0.33.0-rocm", "0.33.1.dev5". It refuses tags that name no release, such as
// "latest" or "20261101".
func parseVersion(s string) (version, bool) {
	s = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "v")
	var v version
	parts := 0
	for parts < len(v.release) {
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		n, err := strconv.Atoi(s[:digits])
		if err != nil {
			return version{}, false
		}
		v.release[parts], s = n, s[digits:]
		parts++
		if len(s) < 2 || s[0] != '.' || s[1] < '0' || s[1] > '9' {
			break
		}
		s = s[1:]
	}
	if parts < 2 {
		return version{}, false
	}
	if local := strings.IndexByte(s, '+'); local >= 0 {
		s = s[:local]
	}
	separated := strings.TrimLeft(s, ".-_")
	v.pre = marksPre(separated, separated == s)
	return v, v.pre || separated == "" || separated != s
}

// marksPre says whether a version goes on with the mark of a pre-release. One
// letter counts only directly after the number: image tags append names with a dash.
func marksPre(suffix string, attached bool) bool {
	for _, mark := range []string{"rc", "dev", "pre", "alpha", "beta", "nightly", "a", "b", "c"} {
		rest, ok := strings.CutPrefix(suffix, mark)
		if ok && (len(mark) > 1 || attached) && (rest == "" || rest[0] < 'a' || rest[0] > 'z') {
			return true
		}
	}
	return false
}

// since compares with the first release that has a feature.
func (v version) since(first version) support {
	switch c := slices.Compare(v.release[:], first.release[:]); {
	case c < 0:
		return supportNo
	case c == 0 && v.pre:
		return supportUnknown
	}
	return supportYes
}
