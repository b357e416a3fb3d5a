// Command enginesim is a simulated inference engine with KV memory that can be
// checked; see package enginesim.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/pdpool/pdpool/enginesim"
)

// version is set when a release is linked.
var version = "dev"

// crashed is the exit code of a process that was killed.
const crashed = 128 + int(syscall.SIGKILL)

const usage = `usage: enginesim serve MODEL [flags]    serve as vLLM would, with its flags
       enginesim answer MODEL [flags]   print what any instance answers to the prompt on standard input
                                        (--max-tokens N, default 16; --chat: one message of role user)
       enginesim version

Flags of its own:
  --sim-geometry JSON             KV geometry: kind, layers, attentionHeads, kvHeads, headValues
  --sim-kv-layout LBHNC|LBNHC     order of heads and tokens in a block
  --sim-prefill-ms-per-layer MS   --sim-ms-per-token MS   pacing, default 0
  --sim-agent-silence-ms MS       how long the agent may say nothing of a transfer, default: what the agent says it may take
  --sim-max-queue N               requests that may wait for blocks, default 256
  --sim-fault NAME[:key=N,...]    repeatable; prefill: copies-off, interleave-off, all-to-rank-0,
                                  flip:rank=,layer=,row=  kill-writer:rank=,layer=
                                  delay-writer:rank=,ms= (all its layers, once)
                                  decode: first-writer-ends
  --sim-fail AS[:KEY=N,...]       how requests fail on purpose: a status such as 500 or 503, hang, cut (the
                                  connection), off; times=N of them (default all); after=N tokens (hang, cut)

Endpoints of its own:
  GET  /sim/state                 blocks held and by which transfer, registration, counts
  POST /sim/fail?as=AS            as --sim-fail, from now on; a request's header X-Sim-Fail: AS is for it alone
  POST /sim/kill                  the process ends at once, as in a crash

GET /health says that the engine lives. Whether it is registered at its agent is told by the agent's /readyz and by
/sim/state; without an agent, requests are answered 503.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "enginesim:", err)
	code := 1
	if wrong := (*enginesim.UsageError)(nil); errors.As(err, &wrong) {
		code = 2
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string, in io.Reader, out, diagnostics io.Writer) error {
	if len(args) == 0 {
		return &enginesim.UsageError{Text: "a command is needed: serve, answer, version or help"}
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], diagnostics)
	case "answer":
		return answer(args[1:], in, out)
	case "help", "-h", "--help":
		_, err := io.WriteString(out, usage)
		return err
	case "version":
		_, err := fmt.Fprintln(out, version)
		return err
	}
	return &enginesim.UsageError{Text: fmt.Sprintf("%q is no command: there are serve, answer, version and help", args[0])}
}

func serve(ctx context.Context, args []string, diagnostics io.Writer) error {
	cfg, err := enginesim.Parse(args)
	if err != nil {
		return err
	}
	instance, err := enginesim.New(ctx, cfg, enginesim.Options{
		Log: slog.New(slog.NewTextHandler(diagnostics, nil)),
		// As the first process of a container it could not even kill itself.
		Crash: func() { os.Exit(crashed) },
	})
	if err != nil {
		return err
	}
	return instance.Run(ctx)
}

func answer(args []string, in io.Reader, out io.Writer) error {
	cfg, options, err := enginesim.ParseAnswer(args)
	if err != nil {
		return err
	}
	prompt, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the prompt: %w", err)
	}
	text, err := enginesim.AnswerText(cfg, options, string(prompt))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, text)
	return err
}
