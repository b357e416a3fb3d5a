package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/pdpool"
)

// Load is what clients ask for at a time.
type Load struct {
	In          int `json:"in"`  // tokens of a prompt
	Out         int `json:"out"` // tokens of an answer
	Concurrency int `json:"concurrency"`
}

// Tokens are those of all requests when their answers are done.
func (l Load) Tokens() int64 { return int64(l.Concurrency) * int64(l.In+l.Out) }

// adviseFlags are the flags of advise.
type adviseFlags struct {
	files  []string
	name   string
	load   string
	gpus   string
	output string
	memory memoryFlags
}

func adviseCommand(o Options) *cobra.Command {
	var f adviseFlags
	cmd := &cobra.Command{
		Use:   "advise -f FILE --load in=N,out=N,concurrency=N (--kv-memory SIZE | --blocks N)",
		Short: "Rank the layouts that would hold a load",
		Long: "Try the decode layouts that the pool's GPUs allow, and rank those that are admitted by what they hold.\n\n" +
			"The memory for KV cache is that of a GPU with the layout of the manifest. At another tp the weights take\n" +
			"another share of a GPU, so that such layouts come after those of the same tp.",
		Example: "  kubectl pdpool advise -f pool.yaml --load in=8192,out=4096,concurrency=256 --blocks 22616\n" +
			"  kubectl pdpool advise -f pool.yaml --load in=2000,out=500,concurrency=64 --gpus 2x8 --kv-memory 120Gi",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.advise(f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "a file, a folder, or - for standard input (repeatable)")
	flags.StringVar(&f.name, "name", "", "the pool, where there are several")
	flags.StringVar(&f.load, "load", "", "tokens in and out of a request, and requests at a time: in=8192,out=4096,concurrency=256")
	flags.StringVar(&f.gpus, "gpus", "", "instances x GPUs of each, such as 2x4; half of the instances are prefill. Unset, what the manifest has")
	flags.StringVarP(&f.output, "output", "o", "text", "text or json")
	f.memory.add(cmd)
	oneOf(cmd, "output", "text", "json")
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.MarkFlagRequired("load")
	return cmd
}

// parseLoad reads in=N,out=N,concurrency=N.
func parseLoad(text string) (Load, error) {
	var l Load
	into := map[string]*int{"in": &l.In, "out": &l.Out, "concurrency": &l.Concurrency}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(value)
		if into[key] == nil || err != nil || n < 0 || n > maxTokens {
			return l, fmt.Errorf("%q of --load is none of in=N, out=N and concurrency=N", part)
		}
		*into[key] = n
	}
	if l.In < 1 || l.Concurrency < 1 {
		return l, errors.New("--load needs in and concurrency above 0")
	}
	return l, nil
}

// parseGPUs reads 2x4.
func parseGPUs(text string) (instances, gpus int, err error) {
	a, b, _ := strings.Cut(text, "x")
	instances, err1 := strconv.Atoi(a)
	gpus, err2 := strconv.Atoi(b)
	if err := errors.Join(err1, err2); err != nil || instances < 2 || gpus < 1 || instances > 512 || gpus > 1024 {
		return 0, 0, fmt.Errorf("--gpus %q is not like 2x4: at least 2 instances, and the GPUs of each", text)
	}
	return instances, gpus, nil
}

// onGPUs gives the pool other GPUs: half of the instances are prefill.
func onGPUs(pool *v1alpha1.PDPool, text string) error {
	if text == "" {
		return nil
	}
	instances, gpus, err := parseGPUs(text)
	if err != nil {
		return err
	}
	set := func(role *v1alpha1.RoleSpec, replicas int) {
		r := pdpool.Resolve(pool, pdpool.Defaults{})
		l := r.Side(kvlayout.Prefill).Layout
		if role == &pool.Spec.Decode {
			l = r.Side(kvlayout.Decode).Layout
		}
		if l.TP*l.DP != gpus {
			role.Layout = v1alpha1.LayoutSpec{TP: int32(gpus)}
		}
		role.Replicas = new(int32(replicas))
	}
	set(&pool.Spec.Prefill, instances/2)
	set(&pool.Spec.Decode, instances-instances/2)
	return nil
}

func (o Options) advise(f adviseFlags) error {
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("output %q is neither text nor json", f.output)
	}
	load, err := parseLoad(f.load)
	if err != nil {
		return err
	}
	pool, err := o.onePool(f.files, f.name)
	if err != nil {
		return err
	}
	if v, beyond := beyondSchema(pool); beyond {
		p := o.page()
		p.verdict(v)
		return cmp.Or(p.err, ErrRefused)
	}
	if err := onGPUs(pool.PDPool, f.gpus); err != nil {
		return err
	}
	s, err := o.setup(pool, f.memory)
	if err != nil {
		return err
	}
	advice, err := s.advise(load)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return o.json(advice)
	}
	return o.adviseText(advice)
}

// Advice is the answer of advise.
type Advice struct {
	Name   string `json:"name"`
	Model  string `json:"model"`
	Load   Load   `json:"load"`
	Tokens int64  `json:"tokensInFlight"`
	// Now is the layout of the manifest.
	Now Candidate `json:"now"`
	// Candidates are layouts that are admitted, the best first; Refused are the others.
	Candidates []Candidate `json:"candidates"`
	Refused    []Candidate `json:"refused,omitempty"`
}

// Candidate is a pair of layouts and what it would hold.
type Candidate struct {
	Layout  string          `json:"layout"` // such as "TP4 -> TP4 DCP4 I64"
	Prefill kvlayout.Layout `json:"prefill"`
	Decode  kvlayout.Layout `json:"decode"`
	// Tokens and Requests are what all decode replicas hold, requests at their full
	// length; Replicas how many there are.
	Tokens   int64 `json:"tokens"`
	Requests int64 `json:"requests"`
	Replicas int   `json:"replicas"`
	// Holds says that the load fits.
	Holds bool `json:"holds"`
	// PromptBytes is what a prompt of the load writes.
	PromptBytes int64  `json:"promptBytes"`
	Mover       string `json:"mover"`
	// OtherShare says that the weights take another share of a GPU than with the layout
	// of the manifest, so that the memory for KV cache is not known to be the same.
	OtherShare bool `json:"otherWeightShare,omitempty"`
	// Unavailable says why this version can't run it yet, though the layouts fit.
	Unavailable string `json:"unavailable,omitempty"`
	// Problems are what refuses it, or warns.
	Problems []kvlayout.Problem `json:"problems,omitempty"`
}

func (s setup) advise(load Load) (Advice, error) {
	if !s.known {
		return Advice{}, fmt.Errorf("the KV geometry of %s is not known: set model.geometry (kubectl pdpool geometry --config config.json)", s.resolved.Model)
	}
	base, err := s.decode.capacity(s.model)
	if err != nil {
		return Advice{}, err
	}
	out := Advice{Name: s.pool.Identity(), Model: s.resolved.Model, Load: load, Tokens: load.Tokens(), Candidates: []Candidate{}}
	out.Now, err = s.candidate(s.decode.side.Layout, base.Memory(), load)
	if err != nil {
		return Advice{}, err
	}
	layouts := s.model.Layouts(s.resolved.Engine, s.decode.side.Pods*s.decode.side.GPUs)
	if len(layouts) == 0 {
		return Advice{}, fmt.Errorf("no layout of %s fits %d GPUs", s.resolved.Model, s.decode.side.Pods*s.decode.side.GPUs)
	}
	for _, l := range layouts {
		c, err := s.best(l, base.Memory(), load)
		switch {
		case err != nil: // a layout that an engine can't lay out is none to advise
		case c.refused():
			out.Refused = append(out.Refused, c)
		default:
			out.Candidates = append(out.Candidates, c)
		}
	}
	slices.SortStableFunc(out.Candidates, better)
	return out, nil
}

// best deals whole blocks where tokens are dealt, as that makes the fewest pieces,
// and single tokens where blocks are refused.
func (s setup) best(l kvlayout.Layout, memory int64, load Load) (Candidate, error) {
	if l.DCP == 1 {
		return s.candidate(l, memory, load)
	}
	l.Interleave = s.blockTokens()
	c, err := s.candidate(l, memory, load)
	if err == nil && c.refused() {
		l.Interleave = 1
		if single, err := s.candidate(l, memory, load); err == nil && !single.refused() {
			return single, nil
		}
	}
	return c, err
}

// candidate is what the pool would be with another decode layout.
func (s setup) candidate(l kvlayout.Layout, memory int64, load Load) (Candidate, error) {
	pool := manifest.Pool{PDPool: s.pool.DeepCopy()}
	pool.Spec.Decode.Layout = v1alpha1.LayoutSpec{TP: int32(l.TP), DP: int32(l.DP), DPLocal: pool.Spec.Decode.Layout.DPLocal, DCP: int32(l.DCP), Interleave: int32(l.Interleave)}
	if l.DP != s.decode.side.Layout.DP {
		pool.Spec.Decode.Layout.DPLocal = 0
	}
	if l.DCP == 1 {
		pool.Spec.Decode.Layout.Interleave = 0
	}
	with := s
	with.resolved = pdpool.Resolve(pool.PDPool, pdpool.Defaults{})
	with.prefill.side, with.decode.side = &with.resolved.Prefill, &with.resolved.Decode
	with.decode.cache.Layout = with.decode.side.Layout
	capacity, err := s.model.Capacity(with.decode.cache, memory)
	if err != nil {
		return Candidate{}, err
	}
	replicas := with.decode.side.Replicas
	c := Candidate{
		Layout:  pairLayout(with.prefill.side.Layout, with.decode.side.Layout),
		Prefill: with.prefill.side.Layout, Decode: with.decode.side.Layout, Replicas: replicas,
		Tokens: capacity.Tokens * int64(replicas), Requests: capacity.Requests(load.In+load.Out) * int64(replicas),
		PromptBytes: with.transfer(load.In).Bytes, Mover: string(with.resolved.Mover),
		OtherShare: l.TP != s.decode.side.Layout.TP,
	}
	c.Holds = c.Requests >= int64(load.Concurrency)
	for _, p := range pdpool.Check(pool.PDPool) {
		if p.Rule == "mover-unavailable" {
			c.Unavailable = p.Message
			continue
		}
		c.Problems = append(c.Problems, p)
	}
	return c, nil
}

func (c Candidate) refused() bool { return kvlayout.Refused(c.Problems) }
