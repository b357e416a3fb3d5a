package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/hack/devcluster/internal/builder"
	"github.com/pdpool/pdpool/hack/devcluster/internal/cluster"
	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
)

func (a *app) upCommand() *cobra.Command {
	var config cluster.Config
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster and wait until it is ready",
		Args:  exactly(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.up(cmd, config) },
	}
	cmd.Flags().IntVar(&config.Nodes, "nodes", 2, "number of nodes")
	cmd.Flags().IntVar(&config.GPUs, "gpus", 8, "simulated amd.com/gpu devices on each node")
	cmd.Flags().IntVar(&config.Port, "port", 16443, "port of 127.0.0.1 for the API server")
	return cmd
}

func checkConfig(c cluster.Config) error {
	switch {
	case c.Nodes < 0 || c.Nodes > cluster.MaxNodes:
		return usagef("--nodes is %d: use 0 (only a control plane) to %d", c.Nodes, cluster.MaxNodes)
	case c.GPUs < 0 || c.GPUs > cluster.MaxGPUs:
		return usagef("--gpus is %d: use 0 to %d", c.GPUs, cluster.MaxGPUs)
	case c.Port < 1 || c.Port > 65535:
		return usagef("--port is %d: use 1 to 65535", c.Port)
	}
	return nil
}

func (a *app) up(cmd *cobra.Command, config cluster.Config) error {
	ctx, start := cmd.Context(), time.Now()
	if err := checkConfig(config); err != nil {
		return err
	}
	root, err := a.root(true)
	if err != nil {
		return err
	}
	c := cluster.Named(root, a.name)
	want := config
	if !cmd.Flags().Changed("nodes") {
		want.Nodes = cluster.AnyNumber
	}
	if !cmd.Flags().Changed("gpus") {
		want.GPUs = cluster.AnyNumber
	}
	err = c.CheckRunning(want)
	if err == nil {
		err = a.start(cmd, c, config)
	}
	if errors.Is(err, cluster.ErrRunning) {
		printf("the cluster %s is running already", a.name)
	} else if err != nil {
		return err
	} else {
		printf("the cluster %s is up after %.1f s", a.name, time.Since(start).Seconds())
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", c.Kubeconfig())
	return errors.Join(err, ctx.Err())
}

// start gets all that the cluster needs onto the machine and starts it.
func (a *app) start(cmd *cobra.Command, c *cluster.Cluster, config cluster.Config) error {
	ctx := cmd.Context()
	if err := c.CheckPort(config.Port); err != nil {
		return err
	}
	b, err := builder.New(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := host.InstallPackages(ctx, os.Stderr); err != nil {
		return err
	}
	if err := b.Build(ctx); err != nil {
		return err
	}
	config.Bin, config.Images = b.Bin(), b.Images()
	printf("starting the cluster %s: %s with %s each", a.name, cluster.Count(config.Nodes, "node"), cluster.Count(config.GPUs, "GPU"))
	return c.Up(ctx, config, b.Dir(), printf)
}

func (a *app) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the cluster and remove all that is left of it",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := a.root(true)
			if err != nil {
				return err
			}
			start := time.Now()
			found, err := cluster.Named(root, a.name).Down(cmd.Context(), printf)
			if err != nil {
				return err
			}
			if !found {
				printf("there is no cluster %s: nothing to do", a.name)
				return nil
			}
			printf("the cluster %s is down after %.1f s", a.name, time.Since(start).Seconds())
			return nil
		},
	}
}

func (a *app) kubeconfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the cluster's kubeconfig",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.running(false)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig())
			return err
		},
	}
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say how the cluster and its nodes are; fails when it does not run",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.running(true)
			if err != nil {
				return err
			}
			return c.Status(cmd.Context(), cmd.OutOrStdout())
		},
	}
}
