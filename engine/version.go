package engine

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// releaseNames is how images say the release of an engine.
type releaseNames struct {
	tag  *regexp.Regexp // a tag that names the engine, before its release
	name *regexp.Regexp // an image of the engine alone, whose tags begin with its release
}

var (
	vllmReleases = releaseNames{
		tag:  regexp.MustCompile(`vllm[-_]?(v?\d+\.\d+\.\d+.*)$`),
		name: regexp.MustCompile(`^vllm(-(openai|rocm|cpu|dev|base))*$`),
	}
	sglangReleases = releaseNames{
		tag:  regexp.MustCompile(`sglang[-_]?(v?\d+\.\d+\.\d+.*)$`),
		name: regexp.MustCompile(`^(sglang|sgl)(-(rocm|amd|dev))*$`),
	}
	leadingRelease = regexp.MustCompile(`^(v?\d+\.\d+\.\d+.*)$`)
)

// otherReleases ends the path of who publishes an engine under its name with release
// numbers of their own.
const otherReleases = "lmcache/"

// VersionOf reads the release of an engine from the tag of an image: vLLM's is "0.33.0"
// for "vllm/vllm-openai-rocm:v0.33.0" or "rocm/vllm:rocm7.0_ubuntu_22.04_vllm_0.33.0",
// SGLang's "0.5.9" for "lmsysorg/sglang:v0.5.9-rocm700-mi30x". It is "" where the tag
// doesn't say: no tag, a digest, a nightly, a pre-release, or a release of something that
// has an engine in it, such as "llm-d-rocm:v0.5.0".
func VersionOf(kind kvlayout.Engine, image string) string {
	image, _, _ = strings.Cut(image, "@")
	publisher, name := path.Split(image)
	name, tag, ok := strings.Cut(name, ":")
	if !ok {
		return ""
	}
	releases := vllmReleases
	if kind == kvlayout.SGLang {
		releases = sglangReleases
	}
	m := releases.tag.FindStringSubmatch(tag)
	if m == nil && releases.name.MatchString(name) && !strings.HasSuffix(publisher, otherReleases) {
		m = leadingRelease.FindStringSubmatch(tag)
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
