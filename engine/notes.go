package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// NoteKind says what a note means for a verdict on the launch.
type NoteKind string

// The kinds of notes.
const (
	// Remark is worth knowing; the verdict stands.
	Remark NoteKind = "remark"
	// Unread is about what the rules depend on and could not be read: there is no
	// verdict without it.
	Unread NoteKind = "unread"
	// Stops says that the engine ends at its start, or that no transfer can come
	// about, whatever the other side is.
	Stops NoteKind = "stops"
)

// Note is a sentence about a place: what could not be read there, or is not what
// it seems.
type Note struct {
	Place Place    `json:"place"`
	Kind  NoteKind `json:"kind"`
	// Field is that of a PDPool's spec which the note is about, such as layout.tp,
	// without the role in front; "" for none. With Unread, its value is not known;
	// "" there is a part of the launch that may say anything.
	Field string `json:"field,omitempty"`
	Text  string `json:"text"`
}

func (n Note) String() string { return n.Place.String() + ": " + n.Text }

// note keeps a remark about an offset in the text.
func (r *reader) note(at int, format string, args ...any) {
	r.keep(Note{Place: r.place(at), Kind: Remark, Text: fmt.Sprintf(format, args...)})
}

// unread is note for what a verdict needs, whatever it may say.
func (r *reader) unread(at int, format string, args ...any) {
	r.keep(Note{Place: r.place(at), Kind: Unread, Text: fmt.Sprintf(format, args...)})
}

// variableNote is about a variable of the environment that is not known.
func (r *reader) variableNote(at int, name, format string, args ...any) {
	n := Note{Place: r.place(at), Kind: Remark, Text: fmt.Sprintf(format, args...)}
	if field, ok := readVariables[name]; ok {
		n.Kind, n.Field = Unread, field
	}
	r.keep(n)
}

// readVariables are those of the environment that the rules depend on, with the
// field of the spec that says the same, if there is one.
var readVariables = map[string]string{
	readModeVariable: "transfer.mode", "MORI_DISABLE_AUTO_XGMI": "transfer.backend", ConvLayout: "",
}

func (r *reader) keep(n Note) { r.out.Notes = bounded(r.out.Notes, n) }

// bounded adds a note that is not there yet while there are not too many. The last one stands for all
// that follow, and so for what could not be read.
func bounded(notes []Note, n Note) []Note {
	if len(notes) == maxNotes || slices.Contains(notes, n) {
		return notes
	}
	if len(notes) == maxNotes-1 {
		n.Kind, n.Field, n.Text = Unread, "", "there is more that could not be read"
	}
	return append(notes, n)
}

// note keeps a remark about the argument with the index; -1 is the launch as a whole.
func (f *facts) note(index int, format string, args ...any) {
	f.keep(index, Remark, "", format, args...)
}

// unread says that the value of a field of the spec is not known.
func (f *facts) unread(index int, field, format string, args ...any) {
	f.keep(index, Unread, field, format, args...)
}

// stops says that the engine ends at its start or moves nothing.
func (f *facts) stops(index int, field, format string, args ...any) {
	f.keep(index, Stops, field, format, args...)
}

func (f *facts) keep(index int, kind NoteKind, field, format string, args ...any) {
	f.notes = bounded(f.notes, Note{Place: f.launch.ArgPlace(index), Kind: kind, Field: field, Text: fmt.Sprintf(format, args...)})
}

// flag is about the value of a flag that could not be read. Where the rules know the
// flag by a field, there is no verdict without it; of others the engine wants a value
// that it can read just as well.
func (f *facts) flag(g Flag, format string, args ...any) {
	if field := f.field(g.Name); field != "" {
		f.unread(g.Index, field, format, args...)
		return
	}
	f.stops(g.Index, "", format, args...)
}

// field is the one of the spec that a flag says; "" for none.
func (f *facts) field(name string) string {
	k, ok := dialectOf(f.in.Engine).lookup(name)
	if !ok {
		return ""
	}
	return k.owner.field
}

// opens notes the arguments that hold something which the text does not define.
func (f *facts) opens() {
	for i, arg := range f.launch.typed {
		open, maybe := arg.open, arg.maybe
		if open == "" && maybe == "" {
			continue
		}
		kind, field := f.unknown(i)
		switch {
		case arg.option && open == "":
			if kind == Unread {
				f.note(i, "%s is %s unless the arguments that the text is called with say another", brief(maybe), brief(f.launch.Args[i]))
			}
		case maybe == "":
			f.keep(i, kind, field, "%s is not known: the text does not say what it stands for", brief(open))
		case open != "":
			f.keep(i, kind, field, "%s is not known: it is set to one thing in one branch of the text, and to another in others", brief(open))
		case kind == Unread && (field != "" || f.bears(i)):
			f.keep(i, kind, field, "%s holds %s in one branch of the text only", brief(maybe), brief(f.launch.Args[i]))
		}
	}
}

// bears says that the argument with the index is the name of a flag that rules depend
// on, though no field of the spec says it.
func (f *facts) bears(index int) bool {
	return slices.ContainsFunc(f.flags.List, func(g Flag) bool { return g.Index == index && slices.Contains(bearing, g.Name) })
}

// unknown is what it means that the argument with the index is not known.
func (f *facts) unknown(index int) (NoteKind, string) {
	for _, g := range f.flags.List {
		switch {
		case index < g.Index || index >= g.valueAt()+max(len(g.Values), 1):
		case index == g.Index && !g.inline && f.open(index):
			return Unread, "" // the name itself
		case slices.Contains(bearing, g.Name):
			return Unread, ""
		case f.field(g.Name) == "", f.aside(g):
			return Remark, ""
		default:
			return Unread, f.field(g.Name)
		}
	}
	if at := f.flags.PositionalAt; len(at) > 0 && at[0] == index && f.in.Engine != kvlayout.SGLang {
		return Unread, "model.name"
	}
	return Unread, "" // flags of any kind
}

// bearing are the flags without a field in the spec that rules depend on.
var bearing = []string{
	"attention-backend", "attention-config", "speculative-config", "spec-method", "spec-model", "hf-overrides",
	"prefill-attention-backend", "decode-attention-backend", "speculative-algorithm", "speculative-draft-model-path",
}

// aside says that what is not known of a transfer configuration is nothing that the
// rules depend on.
func (f *facts) aside(g Flag) bool {
	var c struct {
		Connector any            `json:"kv_connector"`
		Role      any            `json:"kv_role"`
		Extra     map[string]any `json:"kv_connector_extra_config"`
	}
	if g.Name != transferFlag || g.Key != "" || json.Unmarshal([]byte(g.Values[0]), &c) != nil {
		return false
	}
	for _, v := range []any{c.Connector, c.Role, c.Extra["read_mode"], c.Extra["backend"]} {
		if unexpanded(asText(v)) {
			return false
		}
	}
	return true
}

// unexpanded says that text holds what a shell or the reader would fill in.
func unexpanded(text string) bool { return strings.ContainsAny(text, "$`<") }

// noModel notes a launch that names none.
func (f *facts) noModel() {
	_, config := f.flags.Last("config")
	switch {
	case config: // what is not known of it is noted
	case f.launch.bare:
		f.note(-1, "the launch names no model")
	case f.in.Engine == kvlayout.SGLang:
		f.stops(-1, "model.name", "the launch names no model, and SGLang wants one")
	default:
		f.unread(-1, "model.name", "the launch names no model: %s then takes one of its own", f.in.Engine)
	}
}

// geometric are the keys of a model's configuration that its cache depends on.
var geometric = []string{
	"architectures", "model_type", "text_config", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size",
	"kv_lora_rank", "qk_rope_head_dim", "sliding_window", "layer_types", "index_head_dim", "index_topk", "linear_attn_config",
	"full_attention_interval", "num_nextn_predict_layers",
}

// overrides notes what the launch changes of the model's configuration.
func (f *facts) overrides(name string) {
	object, err := f.object(name)
	f.used[name] = false
	at := f.at(name)
	if err != nil && !f.open(at+1) {
		f.stops(at, "", "%s", err)
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if slices.Contains(geometric, key) {
			f.unread(at, "model.geometry", "--%s changes %s of the model: what its cache is like then is not known", name, key)
		}
	}
}

// at is the index of the last argument with a flag or a key of it; -1 for none.
func (f *facts) at(name string) int {
	for _, g := range slices.Backward(f.flags.List) {
		if g.Name == name {
			return g.Index
		}
	}
	return -1
}

// fill puts quotes around what the text does not define where that makes JSON of a
// value: all but that is then known.
func (f *facts) fill() {
	for i, g := range f.flags.List {
		if g.bare() || !f.open(g.valueAt()) || !strings.HasPrefix(g.Values[0], "{") || json.Valid([]byte(g.Values[0])) {
			continue
		}
		open := f.launch.typed[g.valueAt()].open
		if filled := strings.ReplaceAll(g.Values[0], open, strconv.Quote(open)); len(filled) < 2*len(g.Values[0]) && json.Valid([]byte(filled)) {
			f.flags.List[i].Values = []string{filled}
		}
	}
}

// config notes a file of flags that was not read.
func (f *facts) config() {
	g, ok := f.flags.Last("config")
	f.used["config"] = true
	switch {
	case !ok || g.bare() || f.open(g.valueAt()): // noted already
	case g.inline:
		f.note(g.Index, "%s looks at no file that is in one argument with --config: write --config %s", f.in.Engine, brief(g.Values[0]))
	case f.launch.config != nil:
		f.unread(g.Index, "", "the file %s of --config is not read: %s", brief(g.Values[0]), f.launch.config)
	default:
		f.unread(g.Index, "", "the file %s of --config is not read: flags in it are not known", brief(g.Values[0]))
	}
}

// unfilled is unexpanded where the launch has something that the text does not define:
// elsewhere the engine is given such text as it is.
func (f *facts) unfilled(text string) bool {
	return unexpanded(text) && slices.ContainsFunc(f.launch.typed, func(t typed) bool { return t.open != "" })
}

// problem notes what the parser found. It has the index of the flag, and a flag that
// was given again counts no more.
func (f *facts) problem(p Problem) {
	for _, g := range f.flags.List {
		switch {
		case g.Index != p.Index:
		case g.Name == "optimization-level" && g.Key != "":
			f.note(p.Index, "%s: from vLLM 0.33.0 on it is a key of --compilation-config", brief(g.Spelled))
			return
		case !p.value:
			f.stops(p.Index, f.field(g.Name), "%s", p.Text)
			return
		default:
			f.flag(g, "%s", p.Text)
			return
		}
	}
	f.stops(p.Index, "", "%s", p.Text)
}
