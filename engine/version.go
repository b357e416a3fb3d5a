package engine

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

var (
	namedVersion   = regexp.MustCompile(`vllm[-_]?(v?\d+\.\d+\.\d+.*)$`)
	namedSGLang    = regexp.MustCompile(`sglang[-_]?(v?\d+\.\d+\.\d+.*)$`)
	leadingVersion = regexp.MustCompile(`^(v?\d+\.\d+\.\d+.*)$`)
)

// VersionOf reads the release of an engine from the tag of an image: vLLM's is "0.33.0"
// for "vllm/vllm-openai-rocm:v0.33.0" or "rocm/vllm:rocm7.0_ubuntu_22.04_vllm_0.33.0",
// SGLang's "0.5.9" for "lmsysorg/sglang:v0.5.9-rocm700-mi30x". It is "" where the tag
// doesn't say: no tag, a digest, a nightly or a pre-release.
func VersionOf(kind kvlayout.Engine, image string) string {
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
	if m == nil {
		return ""
	}
	r, ok := kvlayout.ParseRelease(m[1])
	if n := r.Numbers; ok && !r.Pre && n[3] == 0 {
		return fmt.Sprintf("%d.%d.%d", n[0], n[1], n[2])
	}
	return ""
}
