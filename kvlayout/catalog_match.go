package kvlayout

import (
	"path"
	"regexp"
	"strings"
)

// Match says by what part of a name the catalog knows a model.
type Match string

// The ways to match, from the strictest on. NameMatch is the Hugging Face name
// itself, also of a folder of the hub's cache, .../models--OWNER--NAME/snapshots/HASH.
//
// BaseMatch is its last part alone, as of a local path or of another publisher: by
// custom that is the same model, or a cast of it, but nothing says so.
//
// QuantizedMatch is the last part without the words for a quantization, such as
// amd/DeepSeek-R1-0528-MXFP4 or RedHatAI/Qwen3-8B-quantized.w8a8. The geometry is that
// of the base model, which quantization leaves alone; the type of cache that such a
// checkpoint asks for is not known, and Checkpoint is that of the base.
const (
	NameMatch      Match = "Name"
	BaseMatch      Match = "BaseName"
	QuantizedMatch Match = "Quantized"
)

// FindModel returns the model of the catalog that a name or path stands for, and how
// it was matched; the Match is "" where there is none. Upper and lower case count as
// equal. The Name of the result is as the catalog spells it.
func FindModel(name string) (Model, Match) {
	const longest = 4096 // as a path can be
	if len(name) > longest {
		return Model{}, ""
	}
	// The cache of ModelScope spells dots so.
	name = strings.ReplaceAll(name, "___", ".")
	name, _ = hubName(name, "")
	for _, f := range families() {
		for _, n := range f.names {
			if strings.EqualFold(n, name) {
				return f.named(n), NameMatch
			}
		}
	}
	return findBase(strings.ReplaceAll(name, "--", "/"))
}

// findBase matches the last part of a name, and takes the longest name of the catalog
// of which it is a quantization.
func findBase(name string) (Model, Match) {
	base := strings.ToLower(path.Base(name))
	var best family
	var spelled string
	for _, f := range families() {
		for _, n := range f.names {
			known := strings.ToLower(path.Base(n))
			rest, ok := strings.CutPrefix(base, known)
			switch {
			case !ok:
			case rest == "":
				return f.named(n), BaseMatch
			case len(known) > len(path.Base(spelled)) && quantizes(rest):
				best, spelled = f, n
			}
		}
	}
	if spelled == "" {
		return Model{}, ""
	}
	return best.named(spelled), QuantizedMatch
}

// quantized is a word that alone says that a checkpoint is quantized or cast: FP8,
// MXFP4, NVFP4, w8a8, WMXFP4FP8, Int4, 4bit, bf16, AWQ.
var quantized = regexp.MustCompile(`^(?:(?:(?:w|a|kv|attn|moe)?(?:mx|nv|ocp)?(?:fp|int|bf|nf)(?:4|6|8|16))+` +
	`|w\d{1,2}a\d{1,2}|\d{1,2}bits?|awq|gptq|bnb|quantized|quark|modelopt|autoround)$`)

// adjective is a word that says more of a quantization, and trailer one that does so
// behind it alone.
var adjective, trailer = regexp.MustCompile(`^(?:w|a|kv|unsloth|dynamic|static|block|ptpc)$`),
	regexp.MustCompile(`^(?:channel|tensor|token|per|sym|asym|g\d{2,3}|\d{2,3}g|amp|asq|marlin|mtp|preview|v\d)$`)

// quantizes says whether what follows a model's name consists of words for a
// quantization.
func quantizes(suffix string) bool {
	if !strings.ContainsAny(suffix[:1], "-_.") {
		return false
	}
	found := false
	for word := range strings.FieldsFuncSeq(suffix, func(r rune) bool { return strings.ContainsRune("-_.", r) }) {
		switch {
		case quantized.MatchString(word):
			found = true
		case !adjective.MatchString(word) && (!found || !trailer.MatchString(word)):
			return false
		}
	}
	return found
}
