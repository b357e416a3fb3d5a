package engine

import (
	"regexp"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

var (
	namedVersion   = regexp.MustCompile(`vllm[-_]?v?(\d+\.\d+\.\d+)(.*)$`)
	namedSGLang    = regexp.MustCompile(`sglang[-_]?v?(\d+\.\d+\.\d+)(.*)$`)
	leadingVersion = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(.*)$`)
	// A suffix that does not come after a release of the same number: none, a
	// build suffix, or a post-release.
	released   = regexp.MustCompile(`^($|[-_+]|\.post\d)`)
	prerelease = regexp.MustCompile(`^[-_.]?(rc|a|b|alpha|beta|dev|nightly)\d*($|[-_+.])`)
)

// VersionOf reads the vLLM version from the tag of an image: "0.33.0" for
// "vllm/vllm-openai-rocm:v0.33.0" or "rocm/vllm:rocm7.0_ubuntu_22.04_vllm_0.33.0".
// It is "" where the tag doesn't say: no tag, a digest, a nightly or a pre-release.
func VersionOf(image string) string { return VersionOfEngine(kvlayout.VLLM, image) }

// VersionOfEngine is VersionOf for images of an engine: the release of SGLang is
// "0.5.9" for "lmsysorg/sglang:v0.5.9-rocm700-mi30x".
func VersionOfEngine(kind kvlayout.Engine, image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndexByte(image, '/')+1:]
	_, tag, ok := strings.Cut(name, ":")
	if !ok {
		return ""
	}
	named := namedVersion
	if kind == kvlayout.SGLang {
		named = namedSGLang
	}
	m := named.FindStringSubmatch(tag)
	if m == nil {
		m = leadingVersion.FindStringSubmatch(tag)
	}
	if m == nil || prerelease.MatchString(m[2]) || !released.MatchString(m[2]) {
		return ""
	}
	return m[1]
}
