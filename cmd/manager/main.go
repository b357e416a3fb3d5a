// Command manager is the PDPool operator: the controller and the admission webhook.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/controllers"
	"github.com/pdpool/pdpool/memlimit"
	"github.com/pdpool/pdpool/pdpool"
	"github.com/pdpool/pdpool/webhook"
	"github.com/pdpool/pdpool/webhook/certs"
)

// version is set by the linker.
var version = "unknown"

// options are the flags.
type options struct {
	defaults       pdpool.Defaults
	metricsAddress string
	probeAddress   string
	webhookPort    int
	namespace      string
	service        string
	secret         string
	configuration  string
	leaderElect    bool
}

// errUsage marks what the flag package has already told.
var errUsage = errors.New("usage")

func main() {
	err := run(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "manager: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, done, err := parse(args, out, errOut)
	if err != nil || done {
		return err
	}
	if err := memlimit.Apply(os.Getenv(memlimit.Env)); err != nil {
		return err
	}
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(errOut, nil)))
	ctrl.Log.Info("starting", "version", version, "agentImage", o.defaults.AgentImage, "routerImage", o.defaults.RouterImage)
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	authority := &certs.Authority{
		Secret:        types.NamespacedName{Namespace: o.namespace, Name: o.secret},
		Configuration: o.configuration,
		Names:         []string{o.service + "." + o.namespace + ".svc", o.service + "." + o.namespace + ".svc.cluster.local"},
		Address:       net.JoinHostPort("127.0.0.1", strconv.Itoa(o.webhookPort)),
	}
	mgr, err := ctrl.NewManager(config, managerOptions(o, scheme, authority))
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if err := setUp(ctx, mgr, o, authority); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// parse reads the flags; done is true when they only asked for the version or help.
func parse(args []string, out, errOut io.Writer) (o options, done bool, err error) {
	fs := flag.NewFlagSet("manager", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.StringVar(&o.defaults.AgentImage, "agent-image", "", "container image of the transfer agent")
	fs.StringVar(&o.defaults.RouterImage, "router-image", "", "container image of the router")
	fs.StringVar(&o.defaults.SimulatorImage, "simulator-image", "", "container image of the engine type Simulator")
	fs.IntVar(&o.defaults.Ports.First, "port-first", pdpool.DefaultPorts.First, "first port of the range that replicas get their ports from")
	fs.IntVar(&o.defaults.Ports.Last, "port-last", pdpool.DefaultPorts.Last, "last port of that range")
	fs.StringVar(&o.metricsAddress, "metrics-listen", ":8080", "address of /metrics, 0 for none")
	fs.StringVar(&o.probeAddress, "probe-listen", ":8081", "address of /healthz and /readyz")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the admission webhook")
	fs.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the manager, its Secret and its Service")
	fs.StringVar(&o.service, "webhook-service", "pdpool-webhook", "name of the webhook's Service")
	fs.StringVar(&o.secret, "webhook-secret", "pdpool-webhook", "name of the Secret that holds the webhook's certificate")
	fs.StringVar(&o.configuration, "webhook-configuration", "pdpool", "name of the ValidatingWebhookConfiguration")
	fs.BoolVar(&o.leaderElect, "leader-elect", true, "let one of several replicas run the controller")
	show := fs.Bool("version", false, "print the version and exit")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, true, nil
		}
		return o, false, errUsage
	}
	if *show {
		_, err := fmt.Fprintln(out, "manager "+version)
		return o, true, err
	}
	return o, false, o.validate(fs.Args())
}

func (o options) validate(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("argument %q is not a flag, and only flags are taken", rest[0]))
	}
	for _, f := range []struct{ name, value string }{
		{"agent-image", o.defaults.AgentImage},
		{"router-image", o.defaults.RouterImage},
		{"simulator-image", o.defaults.SimulatorImage},
		{"namespace", o.namespace},
		{"webhook-service", o.service},
		{"webhook-secret", o.secret},
		{"webhook-configuration", o.configuration},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s must be set", f.name))
		}
	}
	if o.webhookPort < 1 || o.webhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port %d must be between 1 and 65535", o.webhookPort))
	}
	if p := o.defaults.Ports; p.First < 1024 || p.Last > 65535 || p.Last-p.First+1 < pdpool.BlockPorts {
		errs = append(errs, fmt.Errorf("--port-first %d and --port-last %d must span at least %d ports between 1024 and 65535",
			p.First, p.Last, pdpool.BlockPorts))
	}
	return joined(errs)
}

// joined makes one sentence of all that is wrong, nil of nothing.
func joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	err := errs[0]
	for _, e := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, e)
	}
	return err
}

func managerOptions(o options, scheme *runtime.Scheme, authority *certs.Authority) ctrl.Options {
	return ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 server.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:  o.probeAddress,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        "pdpool-manager",
		LeaderElectionNamespace: o.namespace,
		// A manager that ends gives the lease back, so that a roll-out of the
		// operator does not pause the pools.
		LeaderElectionReleaseOnCancel: true,
		Cache:                         controllers.CacheOptions(),
		WebhookServer: crwebhook.NewServer(crwebhook.Options{
			Port: o.webhookPort,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) {
				c.MinVersion = tls.VersionTLS12
				c.GetCertificate = authority.GetCertificate
			}},
		}),
	}
}

func setUp(ctx context.Context, mgr ctrl.Manager, o options, authority *certs.Authority) error {
	if err := checkServerVersion(mgr.GetConfig()); err != nil {
		return err
	}
	if err := controllers.CheckServedSchema(ctx, mgr.GetAPIReader()); err != nil {
		return err
	}
	reconciler := &controllers.PDPoolReconciler{
		Client:   mgr.GetClient(),
		Live:     mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder("pdpool"),
		Defaults: o.defaults,
		Now:      func() time.Time { return metav1.Now().Rfc3339Copy().Time },
	}
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	if err := (webhook.Validator{}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the webhook: %w", err)
	}
	authority.Reader, authority.Writer = mgr.GetAPIReader(), mgr.GetClient()
	if err := mgr.Add(authority); err != nil {
		return fmt.Errorf("set up the webhook's certificate: %w", err)
	}
	if err := mgr.AddHealthzCheck("alive", healthz.Ping); err != nil {
		return fmt.Errorf("set up the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", authority.Ready); err != nil {
		return fmt.Errorf("set up the readiness check: %w", err)
	}
	return nil
}
