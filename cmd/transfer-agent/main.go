// Command transfer-agent runs beside an engine in its pod, as a native sidecar.
//
// The operator hands it its configuration in PDPOOL_AGENT_CONFIG and the pod's
// address in PDPOOL_POD_IP; the flags stand in for both outside Kubernetes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/pdpool/pdpool/memlimit"
	"github.com/pdpool/pdpool/transferagent"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(status(err, os.Stderr))
}

// usageError is a command line that can't be understood.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// status says err in one line and gives the exit status for it: 2 for a wrong
// command line, 1 for all else that went wrong.
func status(err error, stderr io.Writer) int {
	var usage *usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "transfer-agent: %v\nRun transfer-agent --help for usage.\n", err) //nolint:errcheck // nowhere else to say it
		return 2
	}
	fmt.Fprintf(stderr, "transfer-agent: %v\n", err) //nolint:errcheck // nowhere else to say it
	return 1
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, env func(string) string) error {
	if len(args) > 0 && args[0] == commandBench {
		return runBench(ctx, args[1:], os.Stdin, stdout, stderr)
	}
	f := flag.NewFlagSet("transfer-agent", flag.ContinueOnError)
	file := f.String("config", "", "read the configuration (JSON) from this `file` instead of "+agentconfig.Env)
	podIP := f.String("pod-ip", "", "`address` that peers reach this pod by, instead of "+agentconfig.EnvPodIP)
	level := f.String("log-level", "info", "debug, info, warn or error")
	show := f.Bool("version", false, "print the version and exit")
	f.SetOutput(io.Discard)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		f.SetOutput(stdout)
		fmt.Fprintln(stdout, "Usage: transfer-agent [flags]\n       transfer-agent bench [flags]\n\nServes the transfers of the engine in the same pod until SIGTERM; bench measures the movers on this machine.") //nolint:errcheck // help
		f.PrintDefaults()
		return flag.ErrHelp
	} else if err != nil {
		return &usageError{err.Error()}
	}
	if f.NArg() > 0 {
		return &usageError{fmt.Sprintf("unexpected argument %q", f.Arg(0))}
	}
	if *show {
		_, err := fmt.Fprintln(stdout, "transfer-agent", buildVersion())
		return err
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(*level)); err != nil {
		return &usageError{fmt.Sprintf("--log-level %q is not debug, info, warn or error", *level)}
	}
	o, err := options(*file, *podIP, env)
	if err != nil {
		return err
	}
	o.Log = slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: l})).With("pod", o.PodName, "node", env(agentconfig.EnvNode))
	if err := memlimit.Apply(env(memlimit.Env)); err != nil {
		return err
	}
	a, err := transferagent.New(ctx, o)
	if err != nil {
		return err
	}
	o.Log.Info("transfer agent serves", "version", buildVersion(), "pool", o.Config.Pool, "role", o.Config.Role, "mover", o.Config.Mover, "backend", o.Config.Backend)
	return a.Run(ctx)
}

// options reads what the agent is started with.
func options(file, podIP string, env func(string) string) (transferagent.Options, error) {
	document, from := []byte(env(agentconfig.Env)), agentconfig.Env
	if file != "" {
		var err error
		if document, err = readConfig(file); err != nil {
			return transferagent.Options{}, err
		}
		from = file
	}
	if len(document) == 0 {
		return transferagent.Options{}, fmt.Errorf("no configuration: set %s or --config", agentconfig.Env)
	}
	cfg, err := agentconfig.Parse(document)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return transferagent.Options{}, fmt.Errorf("%s: %w", from, err)
	}
	if podIP == "" {
		podIP = env(agentconfig.EnvPodIP)
	}
	ip, err := netip.ParseAddr(podIP)
	if err != nil {
		return transferagent.Options{}, fmt.Errorf("pod IP %q is not an address: set %s or --pod-ip", podIP, agentconfig.EnvPodIP)
	}
	return transferagent.Options{Config: *cfg, PodIP: ip, PodName: env(agentconfig.EnvPod)}, nil
}

// readConfig reads a file that may be no longer than a configuration.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, agentconfig.MaxBytes+1))
	return b, errors.Join(err, f.Close())
}

// version is set by the linker.
var version string

// buildVersion is the linker's version, else the one that the Go toolchain recorded.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
