package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/cli/manifest"
)

// checkFlags are the flags of check.
type checkFlags struct {
	files      []string
	commands   commandFlags
	strict     bool
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
			"Exit status: 0 admitted, 1 refused (with --strict also warned of), 2 something could not be read.",
		Example: "  kubectl pdpool check -f pool.yaml\n" +
			"  kustomize build . | kubectl pdpool check -f -\n" +
			"  kubectl pdpool check --prefill-cmd @prefill.sh --decode-cmd @decode.sh --engine-version 0.33.0\n" +
			"  kubectl pdpool check -f manifests/ -o sarif > pdpool.sarif",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.check(ctx, f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "a file, a folder, or - for standard input (repeatable)")
	f.commands.add(cmd)
	flags.BoolVar(&f.strict, "strict", false, "let warnings fail too")
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
	write, ok := map[string]func(Report) error{"text": o.writeText, "json": o.writeJSON, "sarif": o.writeSARIF}[f.output]
	if !ok {
		return fmt.Errorf("output %q is none of text, json and sarif", f.output)
	}
	if len(f.files) == 0 && !f.commands.given() {
		return errors.New("nothing to check: give -f FILE, or --prefill-cmd and --decode-cmd")
	}
	content, err := o.contents(f.files)
	if err != nil {
		return err
	}
	report := Report{Pools: []Verdict{}, Errors: content.Errors, Others: content.Others}
	fits, err := o.inventory(ctx, f)
	if err != nil {
		return err
	}
	for _, p := range content.Pools {
		v := judge(p)
		if fits != nil {
			v.GPUs = fits(p.PDPool)
		}
		report.Pools = append(report.Pools, v)
	}
	if f.commands.given() {
		pair, err := o.readPair(f.commands)
		if err != nil {
			return err
		}
		report.Pools = append(report.Pools, pair.verdict())
	}
	if len(report.Pools) == 0 && len(report.Errors) == 0 {
		return fmt.Errorf("no PDPool in %v (%s of other kinds)", f.files, count(content.Others, "object"))
	}
	report.conclude()
	if err := write(report); err != nil {
		return err
	}
	return report.end(f.strict)
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
	content, err := o.contents(files)
	if err != nil {
		return manifest.Pool{}, err
	}
	if len(content.Errors) > 0 {
		return manifest.Pool{}, content.Errors[0]
	}
	var found []manifest.Pool
	for _, p := range content.Pools {
		if name == "" || p.Name == name {
			found = append(found, p)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && name != "":
		return manifest.Pool{}, fmt.Errorf("no PDPool %q in %v", name, files)
	case len(found) == 0:
		return manifest.Pool{}, fmt.Errorf("no PDPool in %v", files)
	case name != "":
		return manifest.Pool{}, fmt.Errorf("%d PDPools are named %q in %v", len(found), name, files)
	}
	return manifest.Pool{}, fmt.Errorf("%d PDPools in %v: say which with --name", len(found), files)
}
