package kvlayout

import (
	"path"
	"regexp"
	"strings"
	"sync"
)

// LookupModel returns the model of the catalog that a name or path stands for; its Name
// is as the catalog spells it. Upper and lower case count as equal.
//
// A model is known by its Hugging Face name, also of a folder of the hub's cache,
// .../models--OWNER--NAME/snapshots/HASH; else by the last part of it, as of a local path
// or of another publisher: by custom that is the same model, or a cast of it. Else the
// last part may have words for a quantization behind it, such as
// amd/DeepSeek-R1-0528-MXFP4 or RedHatAI/Qwen3-8B-quantized.w8a8. Quantization leaves the
// geometry alone; which type of cache such a checkpoint asks for is not known, and
// Checkpoint is that of the base model.
func LookupModel(name string) (Model, bool) {
	const longest = 4096 // as a path can be
	if len(name) > longest {
		return Model{}, false
	}
	// The cache of ModelScope spells dots so.
	name = strings.ReplaceAll(name, "___", ".")
	name, _ = hubName(name, "")
	known := namesOfCatalog()
	n, ok := known.whole[strings.ToLower(name)]
	if !ok {
		n, ok = known.byBase(strings.ToLower(path.Base(strings.ReplaceAll(name, "--", "/"))))
	}
	if !ok {
		return Model{}, false
	}
	return n.named(n.spelled), true
}

// catalogName is a family under one of its names.
type catalogName struct {
	family
	spelled string
}

// catalogNames finds families by names in lower case: whole, and their last parts.
type catalogNames struct{ whole, bases map[string]catalogName }

// namesOfCatalog is built once. Of equal last parts the first of the catalog counts.
var namesOfCatalog = sync.OnceValue(func() catalogNames {
	known := catalogNames{map[string]catalogName{}, map[string]catalogName{}}
	for _, f := range families() {
		for _, n := range f.names {
			lower := strings.ToLower(n)
			known.whole[lower] = catalogName{f, n}
			if base := path.Base(lower); known.bases[base].spelled == "" {
				known.bases[base] = catalogName{f, n}
			}
		}
	}
	return known
})

// byBase matches the last part of a name, and takes the longest one of the catalog of
// which it is a quantization.
func (c catalogNames) byBase(base string) (n catalogName, ok bool) {
	longest := 0
	for known, o := range c.bases {
		rest, begins := strings.CutPrefix(base, known)
		if begins && len(known) > longest && (rest == "" || quantizes(rest)) {
			n, longest = o, len(known)
		}
	}
	return n, longest > 0
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
