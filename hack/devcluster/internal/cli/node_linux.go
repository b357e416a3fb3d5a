package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/hack/devcluster/internal/cluster"
)

func (a *app) loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE.tar...",
		Short: "Import docker-archives into every node",
		Args:  atLeast("IMAGE.tar"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.running(true)
			if err != nil {
				return err
			}
			return c.Load(cmd.Context(), args)
		},
	}
}

// onNode wraps a command whose first argument is a node.
func (a *app) onNode(do func(cmd *cobra.Command, c *cluster.Cluster, n int, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.running(true)
		if err != nil {
			return err
		}
		n, err := c.NodeNumber(args[0])
		if err != nil {
			return err
		}
		return do(cmd, c, n, args[1:])
	}
}

func (a *app) stopNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop-node NODE",
		Short: "End a node at once, as a power cut does",
		Args:  exactly("NODE"),
		RunE: a.onNode(func(_ *cobra.Command, c *cluster.Cluster, n int, _ []string) error {
			return c.StopNode(n)
		}),
	}
}

func (a *app) startNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "start-node NODE",
		Short: "Start a stopped node again and wait until it is ready",
		Args:  exactly("NODE"),
		RunE: a.onNode(func(cmd *cobra.Command, c *cluster.Cluster, n int, _ []string) error {
			return c.StartNode(cmd.Context(), n)
		}),
	}
}

func (a *app) gpuUnhealthyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "gpu-unhealthy NODE GPU...",
		Short: "Make GPUs of a node unhealthy, such as gpu3",
		Args:  atLeast("NODE", "GPU"),
		RunE:  a.onNode(setHealth(false)),
	}
}

func (a *app) gpuHealthyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "gpu-healthy NODE [GPU...]",
		Short: "Make GPUs of a node healthy again, all of them when none is named",
		Args:  atLeast("NODE"),
		RunE:  a.onNode(setHealth(true)),
	}
}

func setHealth(healthy bool) func(cmd *cobra.Command, c *cluster.Cluster, n int, args []string) error {
	return func(cmd *cobra.Command, c *cluster.Cluster, n int, args []string) error {
		unhealthy, err := c.SetHealth(n, args, healthy)
		if err != nil {
			return err
		}
		text := "none"
		if len(unhealthy) > 0 {
			text = strings.Join(unhealthy, " ")
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "unhealthy GPUs of n%d: %s\n", n, text)
		return err
	}
}

func (a *app) enterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enter NODE|cluster COMMAND...",
		Short: "Run a command in the namespaces of a node or of the control plane",
		Args:  atLeast("NODE|cluster", "COMMAND"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.running(true)
			if err != nil {
				return err
			}
			return c.Enter(args[0], args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after NODE belong to COMMAND
	return cmd
}

func (a *app) kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [--name NAME] ARGUMENT...",
		Short:              "Run kubectl with the cluster's kubeconfig",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			rest, err := a.takeName(args)
			if err != nil {
				return err
			}
			c, err := a.running(false)
			if err != nil {
				return err
			}
			return c.Kubectl(rest)
		},
	}
}

// takeName reads a leading --name NAME, as all other flags are kubectl's.
func (a *app) takeName(args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	if name, ok := strings.CutPrefix(args[0], "--name="); ok {
		a.name = name
		return args[1:], nil
	}
	if args[0] != "--name" {
		return args, nil
	}
	if len(args) < 2 {
		return nil, usagef("--name wants the name of a cluster")
	}
	a.name = args[1]
	return args[2:], nil
}

func superviseCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "supervise DIR",
		Hidden: true,
		Args:   exactly("DIR"),
		RunE:   func(_ *cobra.Command, args []string) error { return cluster.Supervise(args[0]) },
	}
}

func nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "node DIR N",
		Hidden: true,
		Args:   exactly("DIR", "N"),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return usagef("%q is no number", args[1])
			}
			return cluster.RunNode(args[0], n)
		},
	}
}
