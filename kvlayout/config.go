package kvlayout

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxConfigBytes bounds a config.json. Quantised checkpoints list every module
// that they leave alone, up to a few MiB.
const MaxConfigBytes = 8 << 20

// ConfigError says why a config.json gives no KV geometry, and what to do then.
type ConfigError struct {
	Architecture string // as the config names it; "" if it does not
	// Missing names the fields that the geometry needs and the config lacks, or
	// holds in a form that cannot be read. It is empty for an architecture that is
	// not known.
	Missing []string
	// Reason says in a clause what is wrong.
	Reason string
	// Unlike says that the layers are known not to cache alike, so that no geometry
	// by hand describes them.
	Unlike bool
	// Known is what could be read all the same, for a geometry by hand.
	Known Geometry
}

// Error is one sentence: the architecture, what is wrong, and how to give the
// geometry by hand.
func (e *ConfigError) Error() string {
	architecture := "the config"
	if e.Architecture != "" {
		architecture = fmt.Sprintf("the config of architecture %q", e.Architecture)
	}
	return fmt.Sprintf("%s gives no KV geometry: %s; %s", architecture, e.Reason, e.ByHand())
}

// ByHand says how to give the geometry in a PDPool, with the numbers that could
// be read.
func (e *ConfigError) ByHand() string {
	if e.Unlike {
		return "its layers do not cache alike, so leave model.geometry out"
	}
	k := e.Known
	number := func(name string, value int) string {
		if value < 1 {
			return name + ": ?"
		}
		return fmt.Sprintf("%s: %d", name, value)
	}
	return fmt.Sprintf("if every layer caches alike, set model.geometry to {kind: %s, %s, %s, %s, %s, %s}",
		cmp.Or(string(k.Kind), "MLA or GQA"), number("layers", k.Layers), number("attentionHeads", k.AttentionHeads),
		number("kvHeads", k.KVHeads), number("headValues", k.HeadValues), "experts: 0 for a dense model")
}

// ParseConfig reads the KV geometry from a Hugging Face config.json. Nested
// language models (text_config, language_config, llm_config) are found, and
// fields that a family leaves out get the family's own defaults; a number that
// would have to be guessed is an error, and so is one that is no number, or below 0.
// So is an architecture that is not known: its layers may cache anything. One whose
// model_type is left out is known by architectures.
//
// The error is a *ConfigError, or that of a text that is no JSON object. Memory is
// bounded by a small multiple of the input; the result has no Name.
func ParseConfig(b []byte) (Model, error) {
	if len(b) > MaxConfigBytes {
		return Model{}, fmt.Errorf("a config of %d bytes is longer than %d", len(b), MaxConfigBytes)
	}
	if !utf8.Valid(b) {
		return Model{}, errors.New("it is not in UTF-8, as JSON is")
	}
	var root configRoot
	if err := unmarshalConfig(b, &root); err != nil {
		return Model{}, err
	}
	f := root.language()
	architecture := f.ModelType
	if len(root.Architectures.values) > 0 {
		architecture = root.Architectures.values[0]
	}
	if f.ModelType == "" {
		f.ModelType = typeOf(architecture)
	}
	p := configParser{configFields: f, architecture: clipped(architecture, longestName)}
	m, err := p.model()
	if err != nil {
		return Model{}, err
	}
	if err := m.Validate(); err != nil {
		return Model{}, p.refuse(nil, "it says %v", err)
	}
	return m, nil
}

// unmarshalConfig reads a JSON object, also with Python's NaN and Infinity in it.
// A field of another form than its family has is not given.
func unmarshalConfig(b []byte, root *configRoot) error {
	if trimmed := bytes.TrimLeft(b, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return errors.New("a config.json has to be a JSON object")
	}
	err := json.Unmarshal(b, root)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && (bytes.Contains(b, []byte("Infinity")) || bytes.Contains(b, []byte("NaN"))) {
		*root = configRoot{}
		err = json.Unmarshal(withoutPythonNumbers(b), root)
	}
	var form *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &form) {
		return fmt.Errorf("reading a config.json: %w", err)
	}
	return nil
}

// withoutPythonNumbers blanks NaN, Infinity and -Infinity outside of strings.
func withoutPythonNumbers(b []byte) []byte {
	out := bytes.Clone(b)
	inString := false
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == 'N' || c == 'I' || c == '-'):
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(out[i:], []byte(word)) {
					copy(out[i:], "0"+strings.Repeat(" ", len(word)-1))
				}
			}
		}
	}
	return out
}

// language returns the fields of the language model. What a nested config leaves
// out is not looked for around it, but for the checkpoint's quantisation.
func (r configRoot) language() configFields {
	for _, nested := range []configFields{r.Text, r.Language, r.LLM} {
		if nested.ModelType == "" && !nested.Layers.given && len(nested.LayersBlockType.values) == 0 {
			continue
		}
		if nested.ModelType == "" {
			nested.ModelType = r.ModelType // MiniMax-M3 names it on the outside only.
		}
		if nested.Quantized == (quant{}) {
			nested.Quantized = r.Quantized
		}
		return nested
	}
	return r.configFields
}

// configParser turns fields into a model.
type configParser struct {
	configFields
	architecture string
}

func (p *configParser) model() (Model, error) {
	build := familyOf(p.ModelType)
	if build == nil {
		if why := beyondModel(p.ModelType); why != "" {
			return Model{}, p.refuseUnlike(why)
		}
		return Model{}, p.refuse(nil, "model_type %q is not known%s, and what its layers cache cannot be told from its fields",
			clipped(p.ModelType, longestName), nearType(p.ModelType))
	}
	if name, why := p.wrong(); name != "" {
		return Model{}, p.refuse([]string{name}, "its %s %s", name, why)
	}
	if p.KVShared.or(0) > 0 {
		return Model{}, p.refuseUnlike(fmt.Sprintf("%d of its layers use the cache of others (num_kv_shared_layers)", p.KVShared.value))
	}
	m := Model{
		Architecture: p.architecture, Experts: p.experts(),
		MaxLength: p.MaxLength.or(p.ModelMax.or(p.defaultLength())), Checkpoint: p.checkpoint(),
	}
	var err error
	if m.Groups, m.Drafts, err = build(p); err != nil {
		return Model{}, err
	}
	m.AttentionHeads = p.Heads.or(0) // build may have given the family's default.
	return m, nil
}

// gemma3Length is max_position_embeddings of Transformers' Gemma3TextConfig, which
// Gemma 3 leaves out.
const gemma3Length = 131072

func (p *configParser) defaultLength() int {
	if p.ModelType == "gemma3_text" {
		return gemma3Length
	}
	return 0
}

// experts are the routed experts, in the first spelling that is given.
func (p *configParser) experts() int {
	for _, n := range []number{p.RoutedExperts, p.Experts, p.LocalExperts, p.ErnieExperts} {
		if n.or(0) > 0 {
			return n.value
		}
	}
	return 0
}

// checkpoint is FP8 where the checkpoint comes with scales for a cache of 8-bit
// floats.
func (p *configParser) checkpoint() KVType {
	q := p.Quantized
	if strings.EqualFold(q.Algo, "fp8") || (q.Scheme.Bits.or(0) == 8 && strings.EqualFold(q.Scheme.Type, "float")) {
		return FP8
	}
	return ""
}

// refuseUnlike returns a *ConfigError for layers that no Geometry describes.
func (p *configParser) refuseUnlike(why string) error {
	return &ConfigError{Architecture: p.architecture, Reason: why, Unlike: true}
}

// refuse returns a *ConfigError with what is known all the same.
func (p *configParser) refuse(missing []string, format string, args ...any) error {
	known := Geometry{
		Layers: p.Layers.or(0), AttentionHeads: p.Heads.or(0), KVHeads: p.KVHeads.or(p.Heads.or(0)), HeadValues: p.headDim(),
		MoE: p.experts() > 0,
	}
	if p.KVHeads.wrong != "" {
		known.KVHeads = 0
	}
	if p.HeadDim.wrong != "" || p.AttentionHeadDim.wrong != "" {
		known.HeadValues = 0
	}
	if rank := p.KVLoraRank.or(0); rank > 0 {
		known.Kind, known.KVHeads, known.HeadValues = MLA, 1, rank+p.QKRopeHeadDim.or(0)
	}
	return &ConfigError{Architecture: p.architecture, Missing: missing, Reason: fmt.Sprintf(format, args...), Known: known}
}

// headDim is head_dim or attention_head_dim, or hidden_size / num_attention_heads where that is whole;
// 0 if neither is given.
func (p *configParser) headDim() int {
	for _, d := range []number{p.HeadDim, p.AttentionHeadDim} {
		if d.or(0) > 0 {
			return d.value
		}
	}
	if heads := p.Heads.or(0); heads > 0 && p.Hidden.or(0)%heads == 0 {
		return p.Hidden.or(0) / heads
	}
	return 0
}

// need returns an error that names those of the fields that are not given or not
// above 0.
func (p *configParser) need(fields map[string]number) error {
	var missing []string
	for _, name := range sortedKeys(fields) {
		if fields[name].or(0) < 1 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return p.refuse(missing, "it lacks %s", strings.Join(missing, ", "))
	}
	return nil
}
