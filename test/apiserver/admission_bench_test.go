package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/webhook"
)

// What BenchmarkAdmission measures: so many pools are stored, and so many clients
// create at a time, each the given number of pools per round.
const (
	storedPools   = 1000
	creators      = 50
	createsPerOne = 40
)

// BenchmarkAdmission measures how long a create takes, with the webhook asked and
// without, from the client's side, in turn on one API server:
//
//	KUBEBUILDER_ASSETS=$(hack/devcluster/devcluster.sh assets) go test ./test/apiserver -run '^$' -bench Admission -benchtime 3x
//
// Creates are dry runs, so that both ways see as many stored pools: the server does
// all that it does for a create but the write itself. The controller does not run.
// over-p99-ms is what the webhook adds to the 99th percentile.
func BenchmarkAdmission(b *testing.B) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		b.Skip("KUBEBUILDER_ASSETS names no etcd and kube-apiserver")
	}
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapErrors)))
	a := newAdmission(b)
	a.store(b)
	var with, without []time.Duration
	for b.Loop() {
		a.asked(b, false)
		without = append(without, a.round(b)...)
		a.asked(b, true)
		with = append(with, a.round(b)...)
	}
	ms := func(times []time.Duration, of int) float64 {
		slices.Sort(times)
		return float64(times[len(times)*of/100].Microseconds()) / 1000
	}
	b.ReportMetric(ms(with, 50), "p50-ms")
	b.ReportMetric(ms(with, 99), "p99-ms")
	b.ReportMetric(ms(without, 50), "server-p50-ms")
	b.ReportMetric(ms(without, 99), "server-p99-ms")
	b.ReportMetric(ms(with, 50)-ms(without, 50), "over-p50-ms")
	b.ReportMetric(ms(with, 99)-ms(without, 99), "over-p99-ms")
	b.ReportMetric(0, "ns/op")
}

// admission is an API server and the webhook, with the clients that create.
type admission struct {
	client.Client
	clients  []client.Client
	webhooks *admissionv1.ValidatingWebhookConfiguration
}

func newAdmission(b *testing.B) *admission {
	b.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	configuration := webhookConfiguration(b)
	environment := &envtest.Environment{
		Scheme:                scheme,
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{configuration}},
	}
	config, err := environment.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			b.Error(err)
		}
	})
	install := environment.WebhookInstallOptions
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: crwebhook.NewServer(crwebhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir,
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := (webhook.Validator{}).SetupWithManager(mgr); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	eventually(b, func(context.Context) error { return mgr.GetWebhookServer().StartedChecker()(nil) })
	a := &admission{webhooks: configuration}
	for range creators {
		one := rest.CopyConfig(config)
		one.QPS = -1 // what is measured is not the client
		c, err := client.New(one, client.Options{Scheme: scheme})
		if err != nil {
			b.Fatal(err)
		}
		a.clients = append(a.clients, c)
	}
	a.Client = a.clients[0]
	return a
}

// store fills the API server.
func (a *admission) store(b *testing.B) {
	b.Helper()
	errs := a.each(storedPools/creators, func(c client.Client, name string) error {
		return c.Create(b.Context(), pool("default", func(p *v1alpha1.PDPool) { p.Name = name }))
	})
	for _, err := range errs {
		b.Fatal(err)
	}
}

// each has all clients call create so many times, and returns what went wrong.
func (a *admission) each(times int, create func(c client.Client, name string) error) []error {
	var wg sync.WaitGroup
	failed := make([]error, creators)
	for i, c := range a.clients {
		wg.Go(func() {
			for n := range times {
				if err := create(c, fmt.Sprintf("pool-%d-%d", i, n)); err != nil && failed[i] == nil {
					failed[i] = err
				}
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(failed, func(err error) bool { return err == nil })
}

// round creates, and returns how long each create took.
func (a *admission) round(b *testing.B) []time.Duration {
	b.Helper()
	var mu sync.Mutex
	times := make([]time.Duration, 0, creators*createsPerOne)
	errs := a.each(createsPerOne, func(c client.Client, name string) error {
		p := pool("default", func(p *v1alpha1.PDPool) { p.Name = "new-" + name })
		start := time.Now()
		err := c.Create(b.Context(), p, client.DryRunAll)
		took := time.Since(start)
		mu.Lock()
		defer mu.Unlock()
		times = append(times, took)
		return err
	})
	for _, err := range errs {
		b.Fatal(err)
	}
	return times
}

// asked has the API server ask the webhook or not, and waits until it does.
func (a *admission) asked(b *testing.B, is bool) {
	b.Helper()
	there := &admissionv1.ValidatingWebhookConfiguration{}
	there.Name = a.webhooks.Name
	if is {
		there.Webhooks = a.webhooks.DeepCopy().Webhooks
	}
	now := &admissionv1.ValidatingWebhookConfiguration{}
	if err := a.Get(b.Context(), client.ObjectKeyFromObject(there), now); err != nil {
		b.Fatal(err)
	}
	if len(now.Webhooks) > 0 && !is {
		a.webhooks = now.DeepCopy()
	}
	now.Webhooks = there.Webhooks
	if err := a.Update(b.Context(), now); err != nil {
		b.Fatal(err)
	}
	bad := pool("default", func(p *v1alpha1.PDPool) { p.Name, p.Spec.Prefill.Layout.DCP = "refused", 2 })
	eventually(b, func(ctx context.Context) error {
		if err := a.Create(ctx, bad.DeepCopy(), client.DryRunAll); (err != nil) != is {
			return fmt.Errorf("the webhook is asked: %v, and not %v", err != nil, is)
		}
		return nil
	})
}
