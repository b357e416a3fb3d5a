package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// notesOf are those of the first launch of a text and of the text itself.
func notesOf(t *testing.T, text string) []engine.Note {
	t.Helper()
	s := engine.ParseCommands(text)
	if len(s.Launches) == 0 {
		t.Fatalf("%s: nothing is started: %v", text, s.Notes)
	}
	_, notes := s.Launches[0].Read()
	return append(s.Notes, notes...)
}

// noted is what a launch has to be noted for.
type noted struct {
	text  string
	kind  engine.NoteKind // "" for no note at all
	field string
	want  string
}

func (n noted) check(t *testing.T) {
	t.Helper()
	notes := notesOf(t, n.text)
	if n.kind == "" {
		if len(notes) > 0 {
			t.Errorf("%s\nnotes %+v, want none", n.text, notes)
		}
		return
	}
	if !slices.ContainsFunc(notes, func(got engine.Note) bool {
		return got.Kind == n.kind && got.Field == n.field && strings.Contains(got.Text, n.want)
	}) {
		t.Errorf("%s\nnotes %+v\nwant %s of %q with %q", n.text, notes, n.kind, n.field, n.want)
	}
}

const sglangDecode = "sglang serve m --disaggregation-mode decode --disaggregation-transfer-backend mori "

// What could not be read is never what the engine takes by itself.
func TestUnreadValues(t *testing.T) {
	for _, n := range []noted{
		{moriio("") + "-tp eight", engine.Unread, "layout.tp", "eight"},
		{moriio("") + "--tensor-parallel-size=0", engine.Unread, "layout.tp", "0"},
		{moriio("") + "--data-parallel-size -1", engine.Unread, "layout.dp", "-1"},
		{moriio("") + "--tensor-parallel-size", engine.Unread, "layout.tp", "needs a value"},
		{moriio("") + "-tp $TP", engine.Unread, "layout.tp", "$TP"},
		{moriio("") + "-dcp=$DCP", engine.Unread, "layout.dcp", "$DCP"},
		{moriio("") + "-tp $1", engine.Unread, "layout.tp", "$1"},
		{moriio("") + `"$@"`, engine.Unread, "", "$@"},
		{moriio("") + "--block-size x", engine.Unread, "engine.blockSize", "x"},
		{moriio("") + "--kv-cache-dtype nvfp4", engine.Unread, "engine.kvCacheType", "nvfp4"},
		{moriio("") + "--max-model-len lots", engine.Unread, "model.maxLength", "lots"},
		{moriio("") + "--kv-cache-memory-bytes much", engine.Unread, "engine.kvCacheMemory", "much"},
		{moriio("") + "--max-num-seqs many", engine.Stops, "", "many"},
		{moriio("") + "--seed $SEED", engine.Remark, "", "$SEED"},
		{moriio("") + "--attention-backend $B", engine.Unread, "", "$B"},
		{moriio("") + "--config a.yaml", engine.Unread, "", "a.yaml of --config is not read"},
		{sglangDecode + "--config a.yaml", engine.Unread, "", "a.yaml of --config is not read"},
		{sglangDecode + "--tp eight", engine.Unread, "layout.tp", "eight"},
		{sglangDecode + "--page-size 0", engine.Unread, "engine.blockSize", "0"},
		{"X=<size> vllm serve m -tp 2", engine.Remark, "", "X is set to"},
		{"VLLM_SSM_CONV_STATE_LAYOUT=$X vllm serve m -tp 2", engine.Unread, "", "$X"},
		{"docker run -e MORI_DISABLE_AUTO_XGMI img vllm serve m", engine.Unread, "transfer.backend", "is passed on"},
	} {
		n.check(t)
	}
}

func TestUnknownFlags(t *testing.T) {
	for _, n := range []noted{
		{moriio("") + "--tensor-parallel-siez 8", engine.Unread, "layout.tp", "did you mean --tensor-parallel-size?"},
		{moriio("") + "--tensor_parallell_size=8", engine.Unread, "layout.tp", "did you mean --tensor-parallel-size?"},
		{moriio("") + "-tp8", engine.Unread, "layout.tp", "write -tp 8"},
		{moriio("") + "--enable-prefx-caching", engine.Remark, "", "did you mean --enable-prefix-caching?"},
		{moriio("") + "--foo bar baz", engine.Remark, "", "vLLM 0.33.0 has no flag --foo"},
		{moriio("") + "--nonsense=1", engine.Remark, "", "has no flag --nonsense"},
		{moriio("") + "--uvicorn-log-level info --no-enable-log-requests --disable-uvicorn-access-log -O3 --enable_log_outputs", "", "", ""},
		{"pip install vllm==0.33.0; " + moriio("") + "--nonsense=1", engine.Stops, "", "vLLM 0.33.0 has no flag --nonsense"},
		{"pip install vllm==0.33.0; " + moriio("") + "--block-sise=1", engine.Stops, "engine.blockSize", "did you mean --block-size?"},
		{"pip install vllm==0.32.0; " + moriio("") + "--nonsense=1", engine.Remark, "", "has no flag"},
		{moriio("") + "--data-parallel 8", engine.Unread, "", "several that begin so"},
		{moriio("") + "--disable 8", engine.Remark, "", "several that begin so"},
		{sglangDecode + "--tensor-parallell-size 4", engine.Unread, "layout.tp", "did you mean --tensor-parallel-size?"},
		{sglangDecode + "--enable-mixed-chunk --watchdog-timeout 3 --grammar-backend none", "", "", ""},
	} {
		n.check(t)
	}
	// The words after an unknown flag are its own.
	if in, _ := read(t, moriio("")+"--foo bar baz -tp 8"); in.Layout != (kvlayout.Layout{TP: 8}) {
		t.Errorf("%+v", in.Layout)
	}
}

// What the engine does not start with, and what no rules are known for.
func TestTransferNotes(t *testing.T) {
	config := func(text string) string { return "vllm serve m --kv-transfer-config '" + text + "'" }
	both := `"kv_role":"kv_both"`
	for _, n := range []noted{
		{config(`{"kv_connector":"NixlConnector",` + both + `}`), engine.Unread, "transfer", "no rules are known for the connector NixlConnector"},
		{config(`{"kv_connector":"MoRIIOOConnector",` + both + `}`), engine.Stops, "transfer", "did you mean MoRIIOConnector?"},
		{config(`{"kv_connector":"MoRIIOOConnector","kv_connector_module_path":"x",` + both + `}`), engine.Unread, "transfer", "no rules are known"},
		{config(`{"kv_connector":"Ours",` + both + `}`), engine.Unread, "transfer", "no rules are known for the connector Ours"},
		{config(`{` + both + `}`), engine.Stops, "transfer", "names no kv_connector"},
		{config(`{"kv_connector":"MoRIIOConnector",` + both + `}`), engine.Unread, "transfer", "neither side"},
		{config(`{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer",}`), engine.Stops, "transfer", "not JSON"},
		{config(`[]`), engine.Stops, "transfer", "not a JSON object"},
		{config(`{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer","kvrole":1}`), engine.Stops, "transfer", `refuses the key "kvrole"`},
		{config(`{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer"}`), engine.Stops, "transfer", "http_port is missing"},
		{moriio(`,"backend":"tcp"`), engine.Stops, "transfer.backend", "neither rdma nor xgmi"},
		{moriio(`,"handshakeport":1`), engine.Remark, "", "did you mean handshake_port?"},
		{moriio(`,"colour":"red"`), engine.Remark, "", `does not look at the key "colour"`},
		{"vllm serve m -tp 8", engine.Stops, "transfer", "no --kv-transfer-config"},
		{"vllm serve m --kv-transfer-config \"$CONFIG\"", engine.Unread, "transfer", "$CONFIG"},
		{strings.Replace(moriio(""), "vllm serve m", "vllm serve", 1), engine.Unread, "model.name", "names no model"},
		{strings.Replace(moriio(""), "serve m", "serve $M", 1), engine.Unread, "model.name", "$M"},
		{strings.Replace(moriio(""), `"http_port":8000`, `"http_port":"$PORT"`, 1), engine.Stops, "transfer", "no port"},
		{"vllm serve m --kv-transfer-config \"{'kv_connector':1}\"", engine.Stops, "transfer", "not JSON"},
		{`vllm serve m --kv-transfer-config "{\"kv_connector\":\"MoRIIOConnector\",\"kv_role\":\"$ROLE\",\"kv_connector_extra_config\":{\"http_port\":1}}"`, engine.Unread, "transfer", "$ROLE"},
		{`vllm serve m --kv-transfer-config "{\"kv_connector\":\"MoRIIOConnector\",\"kv_role\":\"kv_producer\",\"kv_connector_extra_config\":{\"http_port\":\"$P\"}}"`, engine.Remark, "", "$P"},
		{moriio("") + "-ac.backend TRITON_MLA extra", engine.Stops, "", `"extra" belongs to no flag`},
		{`vllm serve m --kv-transfer-config "{\"kv_connector\":\"MoRIIOConnector\",\"kv_role\":\"kv_producer\",\"kv_connector_extra_config\":{\"http_port\":${P}}}"`, engine.Remark, "", "${P}"},
		{`vllm serve m --kv-transfer-config "{$MORE,\"kv_role\":\"kv_producer\"}"`, engine.Unread, "transfer", "$MORE"},
		{moriio("") + `--hf-overrides '{"num_hidden_layers":4,"rope_scaling":{}}'`, engine.Unread, "model.geometry", "num_hidden_layers"},
		{moriio("") + `--hf-overrides '{"rope_scaling":{}}'`, "", "", ""},
		{moriio("") + `--hf-overrides.head_dim 64`, engine.Unread, "model.geometry", "head_dim"},
		{moriio("") + `--hf-overrides '[]'`, engine.Stops, "", "not a JSON object"},
		{sglangDecode + `--json-model-override-args '{"num_hidden_layers":4}'`, engine.Unread, "model.geometry", "num_hidden_layers"},
		{"sglang serve --disaggregation-mode decode --config a.yaml", engine.Unread, "", "a.yaml"},
		{"VLLM_MORIIO_CONNECTOR_READ_MODE=1 " + moriio(""), engine.Unread, "transfer.mode", "the release is not known"},
		{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " + moriio(""), engine.Stops, "", "expandable segments"},
		{"VLLM_USE_V1=1 " + moriio(""), engine.Remark, "", "do not look at it"},
		{strings.Replace(sglangDecode, "mori", "mooncake", 1), engine.Unread, "transfer", "no rules are known for the transfer backend mooncake"},
		{strings.Replace(sglangDecode, "mori", "moree", 1), engine.Stops, "transfer", "SGLang has no transfer backend moree"},
		{"sglang serve m --tp 8", engine.Stops, "transfer", "no --disaggregation-mode"},
		{"sglang serve --disaggregation-mode decode --disaggregation-transfer-backend mori", engine.Stops, "model.name", "names no model"},
		{sglangDecode + "--tp_size 8", engine.Stops, "layout.tp", "write --tp-size"},
	} {
		n.check(t)
	}
}

// One argument that was meant as two, and lines that are not continued.
func TestSplitNotes(t *testing.T) {
	for _, n := range []noted{
		{moriio("") + "'--tensor-parallel-size 4'", engine.Stops, "layout.tp", "in one argument"},
		{moriio("") + "-tp 8 \\ \n --block-size 64", engine.Stops, "", "the backslash is followed by a blank"},
		{moriio("") + "-tp 8 # more\n  --block-size 64", engine.Unread, "", "belongs to no command"},
		{moriio("") + "\\\n # more\n  # still\n\n  -dcp 8", engine.Stops, "", "this comment ends the command"},
		{moriio("") + "-tp 8 \\\n # more\nvllm serve n -dcp 8", "", "", ""},
		{"ls \\ \n\n" + moriio("") + "-tp 8", "", "", ""},
	} {
		n.check(t)
	}
	if in, _ := read(t, moriio("")+"\\\n # more\n  -dcp 8 \\\n  # still\n  -tp 8"); in.Layout != (kvlayout.Layout{TP: 8, DCP: 8}) {
		t.Errorf("%+v", in.Layout)
	}
	s := engine.ParseCommandsOf(kvlayout.VLLM, moriio("")+"-tp 8 # more\n  --block-size 64")
	if len(s.Launches) != 1 || len(s.Notes) != 1 || s.Notes[0].Place.String() != "2:3" {
		t.Errorf("%d launches, notes %v", len(s.Launches), s.Notes)
	}
	// Flags alone are no start of an engine that lacks something.
	s = engine.ParseCommandsOf(kvlayout.VLLM, "-tp 8")
	for _, l := range s.Launches {
		if _, notes := l.Read(); slices.ContainsFunc(notes, func(n engine.Note) bool { return n.Kind != engine.Remark }) {
			t.Errorf("%v", notes)
		}
	}
}
