// Command router is the HTTP server in front of a pool.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/memlimit"
	"github.com/pdpool/pdpool/router"
	"github.com/pdpool/pdpool/router/policy"
)

// version is set by the linker.
var version = "unknown"

// options are the flags.
type options struct {
	namespace, pool string
	listen          string
	metrics         string
	registrations   string
	kubeconfig      string
	static          string
	policy          string
	logLevel        slog.Level
	limits          router.Options
	// linger is how long requests are still taken once the router is told to end,
	// since they still come; drain is how long those that it has may go on then.
	linger, drain time.Duration
}

// errUsage marks what the flag package has already told.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "router: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, done, err := parse(args, out, errOut)
	if err != nil || done {
		return err
	}
	s, err := open(ctx, o, slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: o.logLevel})))
	if err != nil {
		return err
	}
	return s.serve(ctx)
}

// parse reads the flags; done is true when they only asked for the version or help.
func parse(args []string, out, errOut io.Writer) (o options, done bool, err error) {
	o.limits = router.Defaults()
	fs := flag.NewFlagSet("router", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&o.namespace, "namespace", "", "namespace of the pool")
	fs.StringVar(&o.pool, "pool", "", "name of the pool whose pods are watched; none: no Kubernetes is asked")
	fs.StringVar(&o.listen, "listen", ":8000", "address of the HTTP server for clients")
	fs.StringVar(&o.metrics, "metrics", ":9090", "address of /metrics, /healthz and /readyz; empty: none")
	fs.StringVar(&o.registrations, "registrations", ":36367", "address for MoRIIO registrations (ZMTP); empty: none, as it is with --static unless given")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: as a pod in the cluster")
	fs.StringVar(&o.static, "static", "", "file with a list of instances, YAML or JSON")
	fs.StringVar(&o.policy, "policy", policy.NameLeastLoaded, "how instances are chosen: "+policy.NameLeastLoaded+" or "+policy.NameRoundRobin)
	fs.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "lowest level that is logged: debug, info, warn or error")
	fs.Int64Var(&o.limits.MaxBody, "max-body", o.limits.MaxBody, "bytes of a request's body; larger ones get 413")
	fs.Int64Var(&o.limits.MaxBuffered, "max-buffered", o.limits.MaxBuffered, "bytes of the bodies of all requests in work; beyond, requests get 503")
	fs.IntVar(&o.limits.MaxInflight, "max-inflight", o.limits.MaxInflight, "requests in work; more wait in the queue")
	fs.IntVar(&o.limits.MaxPerRank, "max-per-rank", o.limits.MaxPerRank, "requests in work for each decode rank, what an engine runs at once; more wait in the queue; 0: any number")
	fs.IntVar(&o.limits.MaxQueue, "max-queue", o.limits.MaxQueue, "requests that wait to be in work; beyond, requests get 503")
	fs.DurationVar(&o.limits.ProbeEvery, "probe-interval", o.limits.ProbeEvery, "time between two questions for its health to an engine that failed; others are asked a fourth as often")
	fs.DurationVar(&o.limits.Frozen, "frozen-after", o.limits.Frozen, "time without an answer to any question for its health after which an engine counts as frozen: what waits for it is sent to another pair; 0: never")
	fs.DurationVar(&o.limits.Queue, "queue-timeout", o.limits.Queue, "time that a request may wait to be in work")
	fs.DurationVar(&o.limits.Dial, "dial-timeout", o.limits.Dial, "time to connect to an engine")
	fs.DurationVar(&o.limits.Body, "body-timeout", o.limits.Body, "time for a client to send its body")
	fs.DurationVar(&o.limits.Answer, "answer-timeout", o.limits.Answer, "time until prefill has answered, and until a streamed answer begins")
	fs.DurationVar(&o.limits.Idle, "idle-timeout", o.limits.Idle, "longest pause in an answer that has begun")
	fs.DurationVar(&o.limits.Request, "request-timeout", o.limits.Request, "time for all of a request with all its attempts; a client may ask for less by "+router.AgeHeader)
	fs.DurationVar(&o.linger, "shutdown-delay", 5*time.Second, "time in which requests are still taken after the signal to end")
	fs.DurationVar(&o.drain, "drain-timeout", 100*time.Second, "time that requests in work then have to end")
	show := fs.Bool("version", false, "print the version and exit")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, true, nil
		}
		return o, false, errUsage
	}
	if o.static != "" && !given(fs, "registrations") {
		o.registrations = "" // the file says who is to be believed
	}
	if *show {
		_, err := fmt.Fprintln(out, "router "+version)
		return o, true, err
	}
	if err := o.fit(os.Getenv(memlimit.Env), given(fs, "max-body"), given(fs, "max-buffered")); err != nil {
		return o, false, err
	}
	return o, false, o.validate(fs.Args())
}

// given says whether a flag was set.
func given(fs *flag.FlagSet, name string) (set bool) {
	fs.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func (o *options) validate(rest []string) error {
	errs := append(o.sources(rest), o.bounds()...)
	var err error
	if o.limits.Policy, err = policy.Parse(o.policy); err != nil {
		errs = append(errs, fmt.Errorf("--policy: %w", err))
	}
	if len(errs) == 0 {
		return nil
	}
	return joined(errs)
}

// sources checks where the instances come from.
func (o *options) sources(rest []string) (errs []error) {
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if len(rest) > 0 {
		add(true, "argument %q is not a flag, and only flags are taken", rest[0])
	}
	add(o.pool != "" && o.namespace == "", "--pool %q needs --namespace", o.pool)
	add(o.pool == "" && (o.namespace != "" || o.kubeconfig != ""), "--namespace and --kubeconfig have no effect without --pool")
	add(o.pool == "" && o.static == "" && o.registrations == "", "there are no instances without --pool, --static or --registrations")
	add(o.pool != "" && o.static != "", "--static and --pool exclude each other")
	return errs
}

// bounds checks the limits.
func (o *options) bounds() (errs []error) {
	l := &o.limits
	if l.MaxPerRank < 0 || l.MaxQueue < 0 {
		errs = append(errs, fmt.Errorf("--max-per-rank %d and --max-queue %d must not be negative", l.MaxPerRank, l.MaxQueue))
	}
	if l.MaxBody < 1 || l.MaxBuffered < l.MaxBody || l.MaxInflight < 1 {
		errs = append(errs, fmt.Errorf("--max-body %d and --max-inflight %d must be at least 1, --max-buffered %d at least --max-body",
			l.MaxBody, l.MaxInflight, l.MaxBuffered))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"dial", l.Dial}, {"body", l.Body}, {"queue", l.Queue}, {"answer", l.Answer}, {"idle", l.Idle}, {"request", l.Request}, {"drain", o.drain}} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("--%s-timeout %s must be more than 0", d.name, d.value))
		}
	}
	if l.ProbeEvery <= 0 {
		errs = append(errs, fmt.Errorf("--probe-interval %s must be more than 0", l.ProbeEvery))
	}
	if l.Frozen < 0 || o.linger < 0 {
		errs = append(errs, fmt.Errorf("--frozen-after %s and --shutdown-delay %s must not be negative", l.Frozen, o.linger))
	}
	return errs
}

// joined makes one sentence of all that is wrong.
func joined(errs []error) error {
	err := errs[0]
	for _, e := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, e)
	}
	return err
}
