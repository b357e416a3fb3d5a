package cli

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/pdpool"
)

// importFlags are the flags of import.
type importFlags struct {
	commands commandFlags
	name     string
	image    string
}

func importCommand(o Options) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import --prefill-cmd TEXT --decode-cmd TEXT",
		Short: "Turn two engine command lines into a PDPool",
		Long: "Write a PDPool that means what two command lines do. Comments at its top name what could not be carried over\n" +
			"and what check says of it.\n\n" +
			"Exit status: 0 the pool means the same and check admits it, 1 check refuses it or what a pool does not have was left out,\n" +
			"2 something could not be read. The manifest is written all the same, as far as it goes.",
		Example: "  kubectl pdpool import --prefill-cmd @prefill.sh --decode-cmd @decode.sh --image vllm/vllm-openai-rocm:v0.33.0 > pool.yaml",
		Args:    noArguments("--prefill-cmd", "--decode-cmd"),
		RunE:    func(*cobra.Command, []string) error { return o.importPool(f) },
	}
	f.commands.add(cmd)
	cmd.Flags().StringVar(&f.name, "name", "", "name of the pool; unset, made of the model's")
	cmd.Flags().StringVar(&f.image, "image", "", "image of the engine, where the command lines name none")
	_ = cmd.MarkFlagRequired("prefill-cmd")
	_ = cmd.MarkFlagRequired("decode-cmd")
	return cmd
}

func (o Options) importPool(f importFlags) error {
	if err := f.commands.validate(); err != nil {
		return err
	}
	pair, err := o.readPair(f.commands)
	if err != nil {
		return err
	}
	m := importer{pair: pair, flags: f}
	text, err := m.manifest()
	if err != nil {
		return err
	}
	p := o.page()
	for _, r := range m.remarks {
		p.comment("%s", r)
	}
	verdict := p.verdictComments(text)
	p.printf("%s", verbatim(text))
	switch {
	case p.err != nil:
		return p.err
	case len(pair.gapsOf()) > 0:
		return errUnread
	case m.other:
		return cmp.Or(verdict, ErrRefused)
	}
	return verdict
}

// verdictComments tells what check says of the manifest, and returns how check ends.
func (p *page) verdictComments(text string) error {
	content := manifest.Read("pool.yaml", []byte(text))
	report := Report{Errors: content.Errors}
	for _, e := range content.Errors {
		p.comment("check: %s", e.Text)
	}
	for _, pool := range content.Pools {
		v := judge(pool)
		report.Pools = append(report.Pools, v)
		for _, b := range v.Problems {
			verb := "warns of"
			if refuses(b) {
				verb = "refuses"
			}
			p.comment("check %s it (%s, %s): %s; %s", verb, b.Rule, b.Field, b.Message, b.Fix)
		}
	}
	return report.end()
}

// importer turns a pair of command lines into a manifest.
type importer struct {
	pair    commandPair
	flags   importFlags
	remarks []string // what could not be carried over
	// other says that what rules depend on is among it, so that the pool is another one.
	other bool
}

func (m *importer) remark(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(m.remarks, text) {
		m.remarks = append(m.remarks, text)
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// poolName is a name that pools may have, made of the model's.
func poolName(model string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(path.Base(model)), "-"), "-")
	name = strings.TrimLeft(name, "0123456789-")
	if len(name) > pdpool.MaxNameLength {
		name = strings.TrimRight(name[:pdpool.MaxNameLength], "-")
	}
	return cmp.Or(name, "pool")
}

// manifest is the PDPool as YAML, fields in the order of the API.
func (m *importer) manifest() (string, error) {
	p, d := m.pair.prefill, m.pair.decode
	for _, n := range m.pair.notes {
		word := map[engine.NoteKind]string{engine.Unread: "not read: ", engine.Stops: "the engine stops: "}[n.Kind]
		m.remark("%s: %s%s", n.Place, word, n.Text)
	}
	for _, a := range m.pair.apart {
		m.remark("not one pool (%s): %s", a.Rule, a.Message)
	}
	prefill, decode := m.arguments(p), m.arguments(d)
	args := sharedPrefix(prefill.args, decode.args)
	env := sharedEnv(prefill.env, decode.env)
	spec := newTree()
	spec.add("model", m.model())
	spec.add("engine", m.engine(args, env))
	spec.add("transfer", m.transfer())
	spec.add("prefill", m.role(p, d, prefill.without(args, env)))
	spec.add("decode", m.role(d, p, decode.without(args, env)))
	root := newTree()
	root.add("apiVersion", "pdpool.dev/v1alpha1")
	root.add("kind", "PDPool")
	meta := newTree()
	meta.add("name", cmp.Or(m.flags.name, poolName(cmp.Or(d.Model, p.Model))))
	root.add("metadata", meta)
	root.add("spec", spec)
	return root.yaml()
}

func (m *importer) model() *tree {
	p, d := m.pair.prefill, m.pair.decode
	t := newTree()
	t.add("name", cmp.Or(d.Model, p.Model))
	if served := cmp.Or(d.Served, p.Served); served != cmp.Or(d.Model, p.Model) {
		t.add("servedName", served)
	}
	if p.MaxLength == d.MaxLength {
		t.add("maxLength", d.MaxLength)
	}
	if m.flags.commands.config != "" {
		t.add("geometry", m.geometry())
	}
	if r := cmp.Or(d.Revision, p.Revision); r != "" {
		m.remark("the revision %s of the model is kept in the arguments", r)
	}
	return t
}

// geometry is that of the config that was given.
func (m *importer) geometry() *tree {
	g := m.pair.pair.Geometry
	t := newTree()
	if !m.pair.pair.HasGeometry {
		m.remark("model.geometry is missing: it describes models whose layers cache alike, and here %s", m.pair.pair.Model.Beyond())
		return t
	}
	t.add("kind", string(g.Kind))
	t.add("layers", g.Layers)
	t.add("attentionHeads", g.AttentionHeads)
	if g.Kind != kvlayout.MLA {
		t.add("kvHeads", g.KVHeads)
	}
	t.add("headValues", g.HeadValues)
	t.add("experts", m.pair.pair.Model.Experts)
	return t
}

func (m *importer) engine(args []string, env []engine.EnvVar) *tree {
	p, d := m.pair.prefill, m.pair.decode
	t := newTree()
	t.add("type", string(d.Engine))
	image := m.flags.image
	if image == "" && p.Image == d.Image {
		image = d.Image
	}
	if image == "" && (p.Image == "" || d.Image == "") && d.Engine != kvlayout.Simulator {
		m.remark("engine.image is missing: a command line names no image, so give one with --image")
	}
	t.add("image", image)
	version := cmp.Or(m.flags.commands.version, m.pair.pair.Version)
	if version != engine.VersionOf(d.Engine, image) {
		t.add("version", version)
	}
	if p.BlockSize == d.BlockSize {
		t.add("blockSize", d.BlockSize)
	}
	if p.KVType == d.KVType && cmp.Or(d.KVType, kvlayout.Auto) != kvlayout.Auto {
		t.add("kvCacheType", m.kvType("the pair", d))
	}
	if p.KVMemory == d.KVMemory {
		t.add("kvCacheMemory", quantity(d.KVMemory))
	} else {
		m.remark("KV cache memory is %d bytes for prefill and %d for decode, and engine.kvCacheMemory is one for both: left out", p.KVMemory, d.KVMemory)
	}
	t.add("args", args)
	t.addEnv(env)
	return t
}

// kvType is the type of a side's cache as a pool names it; "" for one that has no name there.
func (m *importer) kvType(whose string, s startedSide) string {
	if s.KVType != kvlayout.FP8E5M2 {
		return string(cmp.Or(s.KVType, kvlayout.Auto))
	}
	m.other = true
	m.remark("%s has the KV cache type %s, and pools have no name for it (their FP8 is e4m3): it is left out, so that this pool is not what the command lines start", whose, s.KVSpelled)
	return ""
}

func (m *importer) transfer() *tree {
	d := m.pair.decode
	t := newTree()
	if m.pair.pair.Mode == kvlayout.Read {
		t.add("mode", string(kvlayout.Read))
	}
	t.add("mover", m.flags.commands.mover)
	if d.Backend == engine.XGMI && m.flags.commands.mover != string(kvlayout.MoverAgent) {
		if m.flags.commands.mover != string(kvlayout.MoverEngine) && m.agentMoves() {
			m.remark("transfer.backend %s is left out: the engine's own connector cannot serve the pair, and the agents choose theirs", d.Backend)
		} else {
			t.add("backend", string(d.Backend))
		}
	}
	if d.Mover == kvlayout.MoverEngine && d.Engine == kvlayout.VLLM {
		for _, s := range []struct {
			name            string
			value, standard int
		}{
			{"transferTimeoutSeconds", d.Timeouts.Transfer, 30},
			{"deferTimeoutSeconds", m.pair.prefill.Timeouts.Defer, 60},
			{"receiveAbortTimeoutSeconds", d.Timeouts.ReceiveAbort, 120},
		} {
			if s.value != s.standard {
				t.add(s.name, s.value)
			}
		}
	}
	if d.FailurePolicy != "" && d.FailurePolicy != "fail" {
		m.remark("kv_load_failure_policy %s is left out: a pool's engines fail the request, and its client sees that", d.FailurePolicy)
	}
	return t
}

// agentMoves says that a pool would not take the engine's own connector.
func (m *importer) agentMoves() bool {
	pair := m.pair.pair
	pair.Mover = kvlayout.MoverEngine
	return kvlayout.Refused(kvlayout.Compatible(pair))
}

// role is what a side has for itself.
func (m *importer) role(s, other startedSide, own userArgs) *tree {
	t := newTree()
	l := newTree()
	l.add("tp", max(s.Layout.TP, 1))
	l.addUnless("dp", s.Layout.DP, 1)
	if s.Layout.DP > 1 {
		l.addUnless("dpLocal", s.Layout.DPLocal, s.Layout.DP)
	}
	l.addUnless("dcp", s.Layout.DCP, 1)
	l.addUnless("interleave", s.Layout.Interleave, 1)
	l.flow()
	t.add("layout", l)
	for _, d := range []struct {
		name   string
		degree int
	}{{"pipeline parallel", s.Layout.PP}, {"prefill context parallel", s.PCP}} {
		if d.degree > 1 {
			m.other = true
			m.remark("%s has %s degree %d, and pools have no such degree: it is left out, so that this pool is not what the command line starts", s.role, d.name, d.degree)
		}
	}
	if s.Copies > 1 {
		m.remark("%s starts %d instances: set %s.replicas", s.role, s.Copies, s.role)
	}
	if s.BlockSize != other.BlockSize {
		t.add("blockSize", s.BlockSize)
	}
	if s.KVType != other.KVType {
		t.add("kvCacheType", m.kvType(string(s.role), s))
	}
	if s.MaxLength != other.MaxLength {
		t.add("maxLength", s.MaxLength)
	}
	if s.Image != other.Image && m.flags.image == "" {
		t.add("image", s.Image)
	}
	t.add("args", own.args)
	t.addEnv(own.env)
	return t
}
