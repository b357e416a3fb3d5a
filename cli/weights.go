package cli

import (
	"cmp"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// mostGPUMemory is the memory of the largest GPU that engines run on here, in bytes
// (MI355X).
const mostGPUMemory = 288_000_000_000

// weights are the bytes of a model's weights, as far as its name tells; 0 unknown.
type weights int64

// unnamed are models whose names do not tell their parameters, in thousand millions, and
// the bytes of each in the checkpoint.
var unnamed = []struct {
	prefix     string
	parameters float64
	bytes      float64
}{
	{"deepseek-v2-lite", 15.7, 2},
	{"deepseek-v3", 671, 1},
	{"deepseek-r1", 671, 1},
	{"kimi-k2", 1000, 0.5}, // Instruct is FP8, the later ones are of four bits
	{"glm-4.5-air", 106, 2},
	{"glm-4.5", 355, 2},
	{"glm-4.6", 355, 2},
	{"glm-4.7", 355, 2},
	{"minimax-m2", 230, 1},
	{"llama-4-scout", 109, 2},
	{"llama-4-maverick", 400, 2},
	{"mixtral-8x7b", 46.7, 2},
	{"mixtral-8x22b", 141, 2},
}

var (
	parametersInName = regexp.MustCompile(`(?:^|-)(\d+(?:\.\d+)?)b(?:-|$)`)
	fourBits         = regexp.MustCompile(`mxfp4|nvfp4|fp4|int4|w4a|awq|gptq|gpt-oss`)
	eightBits        = regexp.MustCompile(`fp8|int8|w8a`)
)

// weightsOf reads a model's name, such as Qwen3-235B-A22B-FP8.
func weightsOf(model string) weights {
	name := strings.ToLower(path.Base(model))
	var parameters, bytes float64
	for _, u := range unnamed {
		if strings.HasPrefix(name, u.prefix) && !strings.Contains(name, "distill") && !strings.Contains(name, "flash") {
			parameters, bytes = u.parameters, u.bytes
			break
		}
	}
	if m := parametersInName.FindStringSubmatch(name); m != nil && parameters == 0 {
		parameters, _ = strconv.ParseFloat(m[1], 64)
	}
	bytes = cmp.Or(bytes, 2)
	switch {
	case fourBits.MatchString(name):
		bytes = min(bytes, 0.5)
	case eightBits.MatchString(name):
		bytes = min(bytes, 1)
	}
	return weights(parameters * bytes * 1e9)
}

// share is the least that a GPU of a layout holds of them: TP and PP cut them all, and
// expert parallelism the experts over the data parallel ranks too.
func (w weights) share(c caching) int64 {
	ranks := c.layout.TP * c.layout.PP
	if c.experts && c.cache.Engine != kvlayout.SGLang {
		ranks *= c.layout.DP
	}
	return int64(w) / int64(max(ranks, 1))
}

// beyond says that they fit no GPU.
func (w weights) beyond(c caching) bool { return w.share(c) > mostGPUMemory }
