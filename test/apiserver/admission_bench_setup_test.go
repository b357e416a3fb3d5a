package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/webhook"
)

// admission is an API server with all webhooks, and the clients that create.
type admission struct {
	client.Client
	clients []client.Client
	rest    rest.Interface
	bare    bareHandler
}

func newAdmission(b *testing.B) *admission {
	b.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	environment := &envtest.Environment{
		Scheme:                scheme,
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{allWebhooks(b)},
		},
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
	a := &admission{rest: kubernetes.NewForConfigOrDie(config).RESTClient()}
	a.serve(b, config, scheme, environment.WebhookInstallOptions)
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
	for _, w := range ways {
		if err := a.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(w)}}); err != nil {
			b.Fatal(err)
		}
		eventually(b, func(ctx context.Context) error { return a.askedAs(ctx, w) })
	}
	return a
}

// serve runs all handlers on one server until the benchmark ends.
func (a *admission) serve(b *testing.B, config *rest.Config, scheme *runtime.Scheme, install envtest.WebhookInstallOptions) {
	b.Helper()
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
	for _, w := range []way{bare, conditions} {
		mgr.GetWebhookServer().Register(w.path(), &a.bare)
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
}

// allWebhooks is the chart's configuration with bare ones beside its own, each for
// the namespace of its way.
func allWebhooks(b *testing.B) *admissionregistrationv1.ValidatingWebhookConfiguration {
	b.Helper()
	c := webhookConfiguration(b)
	if len(c.Webhooks) != 1 || len(c.Webhooks[0].MatchConditions) == 0 {
		b.Fatalf("the chart has the webhooks %v", c.Webhooks)
	}
	charts := c.Webhooks[0]
	c.Webhooks = nil
	for _, w := range []way{bare, conditions, ours} {
		hook := charts.DeepCopy()
		hook.Name = w.hook()
		hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: string(w)}}
		if w == bare {
			hook.MatchConditions = nil
		}
		if w != ours {
			hook.ClientConfig.Service.Path = new(w.path())
		}
		c.Webhooks = append(c.Webhooks, *hook)
	}
	return c
}

// hook is the name of the webhook that is asked.
func (w way) hook() string { return string(w) + ".pdpool.dev" }

// path is where it is asked.
func (w way) path() string {
	if w == ours {
		return "/validate-pdpool-dev-v1alpha1-pdpool"
	}
	return "/" + string(w)
}

// askedAs returns nil once creates in a namespace are asked about as its way says.
func (a *admission) askedAs(ctx context.Context, w way) error {
	before := a.bare.calls.Load()
	bad := pool(string(w), func(p *v1alpha1.PDPool) { p.Name, p.Spec.Prefill.Layout.DCP = "refused", 2 })
	err := a.Create(ctx, bad, client.DryRunAll)
	refused, called := err != nil, a.bare.calls.Load() > before
	if refused != (w == ours) || called != (w == bare || w == conditions) {
		return fmt.Errorf("in %s the pool is refused: %v, and a bare webhook is asked: %v (%w)", w, refused, called, err)
	}
	return nil
}

// bareHandler admits whatever it is asked about.
type bareHandler struct {
	calls atomic.Int64
}

func (h *bareHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.calls.Add(1)
	body, err := io.ReadAll(r.Body)
	var review struct {
		metav1.TypeMeta
		Request struct {
			UID types.UID `json:"uid"`
		} `json:"request"`
	}
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{
		TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true},
	})
}

// counts are values of series, of the API server and of this process.
type counts map[string]float64

const (
	callSeconds    = "apiserver_admission_webhook_admission_duration_seconds"
	handlerSeconds = "controller_runtime_webhook_latency_seconds"
	cpuSeconds     = "process_cpu_seconds_total"
	// here is before the names of this process's own.
	here = "here/"
)

// counted reads what the API server and this process have counted so far.
func (a *admission) counted(b *testing.B) counts {
	b.Helper()
	text, err := a.rest.Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	own := httptest.NewRecorder()
	promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}).ServeHTTP(own, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	read := counts{}
	read.add("", string(text))
	read.add(here, own.Body.String())
	return read
}

func (c counts) add(prefix, text string) {
	for line := range strings.Lines(text) {
		for _, metric := range []string{callSeconds, handlerSeconds, cpuSeconds} {
			at := strings.LastIndexByte(line, ' ')
			if !strings.HasPrefix(line, metric) || at < 0 {
				continue
			}
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
				c[prefix+line[:at]] = v
			}
		}
	}
}

// since adds what was counted between before and after.
func (c counts) since(before, after counts) {
	for series, v := range after {
		c[series] += v - before[series]
	}
}

// sum adds up the series of a metric that have the label value.
func (c counts) sum(metric, label string) float64 {
	var sum float64
	for series, v := range c {
		if name, labels, _ := strings.Cut(series, "{"); name == metric && (label == "" || strings.Contains(labels, `"`+label+`"`)) {
			sum += v
		}
	}
	return sum
}

// mean is that of a histogram of seconds, in milliseconds.
func (c counts) mean(histogram, label string) float64 {
	return c.sum(histogram+"_sum", label) / c.sum(histogram+"_count", label) * 1000
}
