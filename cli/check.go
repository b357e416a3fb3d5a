package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/cli/manifest"
)

// checkFlags are the flags of check.
type checkFlags struct {
	files      []string
	commands   commandFlags
	strict     bool
	allowEmpty bool
	quiet      bool
	output     string
	nodes      string
	cluster    bool
	context    string
	kubeconfig string
}

func checkCommand(ctx context.Context, o Options) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [-f FILE]... [--prefill-cmd TEXT --decode-cmd TEXT]",
		Short: "Say whether pools can work, and if not which field to change",
		Long: "Check PDPools in files, folders or standard input, or two engine command lines, and say of each problem which rule\n" +
			"it breaks, why that cannot work and what to change. Objects of other kinds are left out, so that the output of\n" +
			"kustomize and helm can be checked as it is.\n\n" +
			"Exit status: 0 admitted, 1 refused (with --strict also warned of or remarked on), 2 something could not be read.",
		Example: "  kubectl pdpool check -f pool.yaml\n" +
			"  kustomize build . | kubectl pdpool check -f -\n" +
			"  kubectl pdpool check --prefill-cmd @prefill.sh --decode-cmd @decode.sh --engine-version 0.33.0\n" +
			"  kubectl pdpool check -f manifests/ -o sarif > pdpool.sarif",
		Args: filesByFlag,
		RunE: func(*cobra.Command, []string) error { return o.check(ctx, f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, filenameHelp)
	f.commands.add(cmd)
	flags.BoolVar(&f.strict, "strict", false, "let warnings, notes and GPUs that lack fail too")
	flags.BoolVar(&f.allowEmpty, "allow-empty", false, "take files without any PDPool as well")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print what fails only (of text; json and sarif have all)")
	flags.StringVarP(&f.output, "output", "o", "text", "text, json or sarif")
	flags.StringVar(&f.nodes, "nodes", "", "a `FILE` with the output of kubectl get nodes -o yaml: say whether their GPUs suffice")
	flags.BoolVar(&f.cluster, "cluster", false, "ask the cluster's nodes and pods whether their GPUs suffice")
	flags.StringVar(&f.context, "context", "", "the context of the kubeconfig that --cluster uses")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig that --cluster uses")
	oneOf(cmd, "output", "text", "json", "sarif")
	cmd.MarkFlagsMutuallyExclusive("nodes", "cluster")
	return cmd
}

func (o Options) check(ctx context.Context, f checkFlags) error {
	output, err := choose("output", f.output, "text", "json", "sarif")
	if err != nil {
		return err
	}
	if err := f.commands.validate(); err != nil {
		return err
	}
	if len(f.files) == 0 && !f.commands.given() {
		return errors.New("nothing to check: give -f FILE, or --prefill-cmd and --decode-cmd")
	}
	report, err := o.report(ctx, f)
	if err != nil {
		return err
	}
	switch output {
	case "json":
		err = o.json(report)
	case "sarif":
		err = o.writeSARIF(report)
	default:
		err = o.writeText(report)
	}
	return cmp.Or(err, report.end())
}

// report judges what the flags name.
func (o Options) report(ctx context.Context, f checkFlags) (Report, error) {
	r := Report{Pools: []Verdict{}, strict: f.strict, quiet: f.quiet}
	var pools []*v1alpha1.PDPool
	err := o.each(f.files, func(c manifest.Content) {
		r.Errors, r.Others = append(r.Errors, c.Errors...), r.Others+c.Others
		for _, p := range c.Pools {
			r.Pools, pools = append(r.Pools, priced(p)), append(pools, p.PDPool)
		}
	})
	if err != nil {
		return r, err
	}
	fits, err := o.inventory(ctx, f)
	if err != nil {
		return r, err
	}
	if f.commands.given() {
		pair, err := o.readPair(f.commands)
		if err != nil {
			return r, err
		}
		r.Pools, pools = append(r.Pools, pair.verdict()), append(pools, pair.standIn())
	}
	for i, pool := range pools {
		if fits != nil {
			r.Pools[i].GPUs = fits(pool)
		}
	}
	if len(r.Pools) == 0 && len(r.Errors) == 0 && !f.allowEmpty {
		return r, fmt.Errorf("no PDPool in %s (%s of other kinds): with --allow-empty that is no error", named(f.files), count(r.Others, "object"))
	}
	r.conclude()
	return r, nil
}

// priced is the verdict on a pool, and what its transfers take.
func priced(p manifest.Pool) Verdict {
	v, beyond := beyondSchema(p)
	if !beyond {
		s, _ := setupOf(p)
		v = s.verdict()
		v.Transfer = s.priced()
	}
	return v
}

// conclude says what follows from all verdicts.
func (r *Report) conclude() {
	r.Admitted = len(r.Errors) == 0
	for _, v := range r.Pools {
		r.Admitted = r.Admitted && v.Admitted
	}
}

// onePool is the only pool that files hold, or that of a name.
func (o Options) onePool(files []string, name string) (manifest.Pool, error) {
	var found manifest.Pool
	var unread []*manifest.Error
	n := 0
	err := o.each(files, func(c manifest.Content) {
		unread = append(unread, c.Errors...)
		for _, p := range c.Pools {
			if name == "" || p.Name == name {
				found, n = p, n+1
			}
		}
	})
	switch {
	case err != nil:
		return manifest.Pool{}, err
	case len(unread) > 0:
		return manifest.Pool{}, unread[0]
	case n == 1:
		return found, nil
	case n == 0 && name != "":
		return manifest.Pool{}, fmt.Errorf("no PDPool %q in %s", name, named(files))
	case n == 0:
		return manifest.Pool{}, fmt.Errorf("no PDPool in %s", named(files))
	case name != "":
		return manifest.Pool{}, fmt.Errorf("%d PDPools are named %q in %s", n, name, named(files))
	}
	return manifest.Pool{}, fmt.Errorf("%d PDPools in %s: say which with --name", n, named(files))
}
