package kvlayout

import (
	"slices"
	"strconv"
	"strings"
)

// Release is the number of a release of an engine.
type Release struct {
	Numbers [4]int // what is not said is 0
	// Pre says that it is a release candidate, a beta or a development build before the
	// release of these numbers.
	Pre bool
}

// ParseRelease reads "0.33.0", "v0.33.0", "0.29", "0.33.0rc1", "0.33.0+rocm72",
// "0.33.0-rocm", "0.33.1.dev5". It refuses tags that name no release, such as
// "latest" or "20261101".
func ParseRelease(s string) (Release, bool) {
	s = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "v")
	var v Release
	parts := 0
	for parts < len(v.Numbers) {
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		n, err := strconv.Atoi(s[:digits])
		if err != nil {
			return Release{}, false
		}
		v.Numbers[parts], s = n, s[digits:]
		parts++
		if len(s) < 2 || s[0] != '.' || s[1] < '0' || s[1] > '9' {
			break
		}
		s = s[1:]
	}
	if parts < 2 {
		return Release{}, false
	}
	if local := strings.IndexByte(s, '+'); local >= 0 {
		s = s[:local]
	}
	separated := strings.TrimLeft(s, ".-_")
	v.Pre = marksPre(separated, separated == s)
	return v, v.Pre || separated == "" || separated != s
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

// Compare is below 0 where r has the smaller numbers, and 0 where they are the same,
// whatever the one or the other is a pre-release of.
func (r Release) Compare(o Release) int { return slices.Compare(r.Numbers[:], o.Numbers[:]) }

// Older is the older of two versions, as a pair can do what its older side can; "" where
// one of them can't be read.
func Older(a, b string) string {
	ra, ok := ParseRelease(a)
	rb, both := ParseRelease(b)
	switch c := ra.Compare(rb); {
	case !ok || !both:
		return ""
	case c < 0 || c == 0 && ra.Pre:
		return a
	}
	return b
}
