package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/hack/devcluster/internal/builder"
	"github.com/pdpool/pdpool/hack/devcluster/internal/cluster"
)

const defaultName = "dev"

// run parses and executes the arguments.
func run(ctx context.Context, args []string) error {
	root := newRoot()
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// app holds what the commands share.
type app struct {
	name string // of the cluster
}

func newRoot() *cobra.Command {
	a := &app{}
	root := &cobra.Command{
		Use:           "devcluster",
		Short:         "Run a real Kubernetes cluster of several nodes on this machine",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q: see devcluster --help", args[0])
			}
			return usagef("give a command: see devcluster --help")
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w: see %s --help", err, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().StringVar(&a.name, "name", defaultName, "name of the cluster")
	root.AddCommand(
		a.buildCommand(), a.assetsCommand(), a.imageCommand(),
		a.upCommand(), a.downCommand(), a.kubeconfigCommand(), a.statusCommand(),
		a.loadCommand(), a.stopNodeCommand(), a.startNodeCommand(),
		a.gpuUnhealthyCommand(), a.gpuHealthyCommand(),
		a.enterCommand(), a.kubectlCommand(),
		superviseCommand(), nodeCommand(),
	)
	return root
}

// exactly wants as many arguments as there are names, atLeast that many or more.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return wrongCount(cmd, args, names, "")
		}
		return nil
	}
}

func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return wrongCount(cmd, args, names, "...")
		}
		return nil
	}
}

func wrongCount(cmd *cobra.Command, args, names []string, more string) error {
	if len(names) == 0 {
		return usagef("%s takes no arguments, not %q: see %s --help", cmd.Name(), args[0], cmd.CommandPath())
	}
	return usagef("%s wants %s%s and got %d arguments: see %s --help", cmd.Name(), strings.Join(names, " "), more, len(args), cmd.CommandPath())
}

// printf reports progress.
func printf(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// root checks the cluster's name and that this is root, and returns the cache folder.
func (a *app) root(needsRoot bool) (string, error) {
	if err := cluster.CheckName(a.name); err != nil {
		return "", usageError{err}
	}
	if needsRoot && os.Geteuid() != 0 {
		return "", errors.New("namespaces and cgroups need root: run devcluster as root or by sudo (build, assets and image need no root)")
	}
	return builder.CacheDir()
}

// running is the cluster that the flags name, which has to run.
func (a *app) running(needsRoot bool) (*cluster.Cluster, error) {
	root, err := a.root(needsRoot)
	if err != nil {
		return nil, err
	}
	return cluster.Running(root, a.name)
}
