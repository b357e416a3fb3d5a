package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
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
	target
	load   string
	gpus   string
	output string
}

func adviseCommand(o Options) *cobra.Command {
	var f adviseFlags
	cmd := &cobra.Command{
		Use:   "advise (-f FILE | --prefill-cmd TEXT --decode-cmd TEXT) --load in=N,out=N,concurrency=N (--kv-memory SIZE | --blocks N)",
		Short: "Rank the layouts that would hold a load",
		Long: "Try the decode layouts that the pool's GPUs allow, and rank those that are admitted by what they hold.\n" +
			"The prefill layout stays, as what decode holds does not depend on it, but where every decode layout is refused\n" +
			"with it, or where it has no room for the weights or for a prompt of the load: then others are tried too.\n\n" +
			"The memory for KV cache is that of a GPU with the layout of the manifest. At another tp the weights take\n" +
			"another share of a GPU, so that such layouts come after those of the same tp.",
		Example: "  kubectl pdpool advise -f pool.yaml --load in=8192,out=4096,concurrency=256 --blocks 22616\n" +
			"  kubectl pdpool advise -f pool.yaml --load in=2000,out=500,concurrency=64 --gpus 2x8 --kv-memory 120Gi",
		Args: filesByFlag,
		RunE: func(*cobra.Command, []string) error { return o.advise(f) },
	}
	flags := cmd.Flags()
	f.add(cmd)
	flags.StringVar(&f.load, "load", "", "tokens in and out of a request, and requests at a time: in=8192,out=4096,concurrency=256")
	flags.StringVar(&f.gpus, "gpus", "", "instances x GPUs of each, such as 2x4; half of the instances are prefill. Unset, what the manifest has")
	flags.StringVarP(&f.output, "output", "o", "text", "text or json")
	oneOf(cmd, "output", "text", "json")
	_ = cmd.MarkFlagRequired("load")
	return cmd
}

// parseLoad reads in=N,out=N,concurrency=N.
func parseLoad(text string) (Load, error) {
	var l Load
	into := map[string]*int{"in": &l.In, "out": &l.Out, "concurrency": &l.Concurrency}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := amount(value)
		if into[key] == nil || err != nil || n < 0 || n > maxTokens {
			return l, fmt.Errorf("%q of --load is none of in=N, out=N and concurrency=N, with numbers such as 8192, 8k (8,000) or 8Ki (8,192)", part)
		}
		*into[key] = n
	}
	if l.In < 1 || l.Concurrency < 1 {
		return l, errors.New("--load needs in and concurrency above 0")
	}
	return l, nil
}

// amount reads a number with the suffixes of quantities; capitals of k and m are meant
// alike, as nobody asks for thousandths.
func amount(text string) (int, error) {
	switch n := len(text) - 1; {
	case n > 0 && text[n] == 'K':
		text = text[:n] + "k"
	case n > 0 && text[n] == 'm':
		text = text[:n] + "M"
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, err
	}
	n, whole := q.AsInt64()
	if !whole || n > maxTokens {
		return 0, fmt.Errorf("%q is no whole number up to %d", text, maxTokens)
	}
	return int(n), nil
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
	output, err := choose("output", f.output, "text", "json")
	if err != nil {
		return err
	}
	load, err := parseLoad(f.load)
	if err != nil {
		return err
	}
	s, beyond, err := o.setup(f.target, f.gpus)
	switch {
	case err != nil:
		return err
	case beyond:
		return o.onlyVerdict(s, output)
	}
	advice, err := s.advise(load)
	if err != nil {
		return err
	}
	if output == "json" {
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
	// PrefillVaries says why prefill has other layouts than that of the manifest; "" where
	// it has not.
	PrefillVaries string `json:"prefillVaries,omitempty"`
	// PrefillLacks says why prefill can't do, where no other layout on its GPUs can.
	PrefillLacks string `json:"prefillLacks,omitempty"`
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
	// Weights are the bytes of a GPU that the weights alone would take, where that is more
	// than a GPU has; 0 where they fit, or where their size is not known.
	Weights int64 `json:"weightsPerGPU,omitempty"`
	// Unavailable says why this version can't run it yet, though the layouts fit.
	Unavailable string `json:"unavailable,omitempty"`
	// Problems are what refuses it, or warns.
	Problems []kvlayout.Problem `json:"problems,omitempty"`
}

func (s setup) advise(load Load) (Advice, error) {
	if !s.known {
		return Advice{}, fmt.Errorf("the KV geometry of %s is not known: set model.geometry (kubectl pdpool geometry --config config.json), or with command lines give --config", s.loads)
	}
	base, err := s.decode.capacity(s.model)
	if err != nil {
		return Advice{}, err
	}
	out := Advice{Name: s.name, Model: s.loads, Load: load, Tokens: load.Tokens(), Candidates: []Candidate{}}
	out.Now, err = s.candidate(s.prefill.layout, s.decode.layout, base.Memory(), load)
	if err != nil {
		return Advice{}, err
	}
	gpus := s.decode.pods * s.decode.gpus
	layouts := s.model.Layouts(s.engine, gpus)
	if len(layouts) == 0 {
		return Advice{}, fmt.Errorf("no layout of %s fits %d GPUs", s.loads, gpus)
	}
	out.try(s, []kvlayout.Layout{s.prefill.layout}, layouts, base.Memory())
	out.varyPrefill(s, layouts, base.Memory())
	slices.SortStableFunc(out.Candidates, better)
	return out, nil
}

// try looks at each decode layout with the best of prefill for it.
func (a *Advice) try(s setup, prefill, decode []kvlayout.Layout, memory int64) {
	a.Candidates, a.Refused = []Candidate{}, nil
	for _, d := range decode {
		var tried []Candidate
		for _, p := range prefill {
			if c, err := s.best(p, d, memory, a.Load); err == nil { // one that an engine can't lay out is none to advise
				tried = append(tried, c)
			}
		}
		switch slices.SortStableFunc(tried, rather); {
		case len(tried) == 0:
		case tried[0].refused():
			a.Refused = append(a.Refused, tried[0])
		default:
			a.Candidates = append(a.Candidates, tried[0])
		}
	}
}

// best deals whole blocks where tokens are dealt, as that makes the fewest pieces,
// and single tokens where blocks are refused.
func (s setup) best(prefill, l kvlayout.Layout, memory int64, load Load) (Candidate, error) {
	if l.DCP == 1 {
		return s.candidate(prefill, l, memory, load)
	}
	l.Interleave = s.blockTokens()
	c, err := s.candidate(prefill, l, memory, load)
	if err == nil && c.refused() {
		l.Interleave = 1
		if single, err := s.candidate(prefill, l, memory, load); err == nil && !single.refused() {
			return single, nil
		}
	}
	return c, err
}

// candidate is what the pool would be with other layouts.
func (s setup) candidate(prefill, l kvlayout.Layout, memory int64, load Load) (Candidate, error) {
	with := s.with(prefill, l)
	with.decode.memory, with.decode.blocks = memory, 0
	capacity, err := with.decode.capacity(s.model)
	if err != nil {
		return Candidate{}, err
	}
	replicas := with.decode.replicas
	c := Candidate{
		Layout:  pairLayout(with.prefill.layout, with.decode.layout),
		Prefill: with.prefill.layout, Decode: with.decode.layout, Replicas: replicas,
		Tokens: capacity.Tokens * int64(replicas), Requests: capacity.Requests(load.In+load.Out) * int64(replicas),
		PromptBytes: with.transfer(load.In).Bytes, Mover: with.cost.Mover,
		OtherShare: l.TP != s.decode.layout.TP, Unavailable: with.unavailable, Problems: with.problems,
	}
	c.Holds = c.Requests >= int64(load.Concurrency)
	if w := weightsOf(s.loads); w.beyond(with.decode) {
		c.Weights = w.share(with.decode)
	}
	return c, nil
}

func (c Candidate) refused() bool { return kvlayout.Refused(c.Problems) }
