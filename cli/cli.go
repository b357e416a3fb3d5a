// Package cli is kubectl pdpool: what the rules say of manifests and command lines
// (check), what a pool becomes (plan), which layouts would serve a load (advise),
// the KV geometry of a model (geometry), manifests from command lines (import) and
// the catalog of rules. It decides nothing of its own: admission answers the same,
// by the same functions.
//
// It needs no cluster, but for check --cluster, which asks through kubectl.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Options are what the commands have of their surroundings.
type Options struct {
	Version string // of the program
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	// Colour says that Out is a terminal that takes colours.
	Colour bool
	// Kubectl runs kubectl with arguments and returns what it prints.
	Kubectl func(ctx context.Context, args ...string) ([]byte, error)
	// Now is for the age of what nodes say of themselves.
	Now func() time.Time
}

// ErrRefused is the end of a command that has printed its verdict: something is
// refused, or warned of under --strict.
var ErrRefused = errors.New("refused")

// errUnread is the end of a command that has printed what could not be read.
var errUnread = errors.New("not all could be read")

// ExitCode is what the process ends with: 0, 1 for refused, 2 for what could not
// be read or asked.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrRefused):
		return 1
	}
	return 2
}

// Silent says that the command has told the user already what was wrong.
func Silent(err error) bool { return errors.Is(err, ErrRefused) || errors.Is(err, errUnread) }

// Command is the root command. The context ends what asks the cluster.
func Command(ctx context.Context, o Options) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-pdpool",
		Short: "Say ahead of time whether a prefill/decode pool can work, and what it will hold",
		Long: "Check, plan and tune prefill/decode pools (PDPool) without a cluster.\n\n" +
			"The verdict is that of the admission webhook: same rules, same sentences.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl pdpool"},
		Version:       o.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(
		checkCommand(ctx, o),
		planCommand(o),
		adviseCommand(o),
		geometryCommand(o),
		importCommand(o),
		rulesCommand(o),
		versionCommand(o),
	)
	return root
}

// oneOf completes a flag with its values.
func oneOf(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// choose is the one of the values that is meant, upper and lower case alike.
func choose(what, value string, values ...string) (string, error) {
	for _, v := range values {
		if strings.EqualFold(v, value) {
			return v, nil
		}
	}
	last := len(values) - 1
	return "", fmt.Errorf("%s %q is none of %s and %s", what, value, strings.Join(values[:last], ", "), values[last])
}

// filenameHelp describes -f.
const filenameHelp = "a file, a folder with all in it, or - for standard input (repeatable)"

// filesByFlag refuses arguments that are no flags: files among them are most often
// meant for -f.
func filesByFlag(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q belongs to no flag: give files as -f %s", args[0], args[0])
	}
	return nil
}

// noArguments refuses arguments that are no flags, and names the flags they may belong to.
func noArguments(flags ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%q belongs to no flag: give %s", args[0], strings.Join(flags, " or "))
		}
		return nil
	}
}

// named lists the files of -f in a sentence.
func named(files []string) string {
	names := slices.Clone(files)
	for i, f := range names {
		if f == "-" {
			names[i] = "standard input"
		}
	}
	return strings.Join(names, ", ")
}

// notAFile says what to do about a path that kubectl would take and this does not.
func notAFile(path string, err error) error {
	switch {
	case err == nil:
	case strings.Contains(path, "://"):
		return errors.New("it is an address: fetch it and give it as -f -")
	case strings.Contains(path, ","):
		return errors.New("there is no such file: give each file its own -f")
	}
	return err
}
