// Package apiserver runs the operator against a real API server (envtest), with
// no kubelet: the tests play the kubelet and the Deployment controller. It runs
// once with the API server's gang scheduling gates off, the default, and once on.
package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/controllers"
	"github.com/pdpool/pdpool/pdpool"
	"github.com/pdpool/pdpool/webhook"
)

// within bounds every wait for the operator or the API server.
const within = 5 * time.Minute

// gates are the two ways in which the API server runs.
var gates = map[string]map[string]string{
	"gang gates off": {},
	"gang gates on": {
		"feature-gates":  "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
		"runtime-config": "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
	},
}

// world is an API server with the operator running against it.
type world struct {
	client.Client
	scheme *runtime.Scheme
	writes *tally // by the operator
	// manager may what the operator may.
	manager client.Client
	config  *rest.Config // the operator's
	admin   *rest.Config
}

func TestOperator(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS names no etcd and kube-apiserver: run make test")
	}
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapErrors)))
	for name, flags := range gates {
		t.Run(name, func(t *testing.T) {
			w := start(t, flags)
			t.Run("admission", func(t *testing.T) { testAdmission(t, w) })
			t.Run("wide manifests", func(t *testing.T) { testWide(t, w) })
			t.Run("children", func(t *testing.T) { testChildren(t, w) })
			t.Run("recovery", func(t *testing.T) { testRecovery(t, w) })
			t.Run("conflict", func(t *testing.T) { testConflict(t, w) })
			t.Run("removed key", func(t *testing.T) { testRemovedKey(t, w) })
			t.Run("repair", func(t *testing.T) { testRepair(t, w) })
			t.Run("same name again", func(t *testing.T) { testSameNameAgain(t, w) })
			t.Run("updates", func(t *testing.T) { testUpdates(t, w) })
			t.Run("fixed fields", func(t *testing.T) { testFixed(t, w) })
			t.Run("generation", func(t *testing.T) { testGeneration(t, w) })
			t.Run("idle", func(t *testing.T) { testIdle(t, w) })
			t.Run("secret", func(t *testing.T) { testSecret(t, w) })
			t.Run("devices", func(t *testing.T) { testDevices(t, w) })
			t.Run("answers", func(t *testing.T) { testAnswers(t, w) })
			t.Run("templates", func(t *testing.T) { testTemplates(t, w) })
			t.Run("quota", func(t *testing.T) { testQuota(t, w) })
			t.Run("pod security", func(t *testing.T) { testPodSecurity(t, w) })
			t.Run("operator gone", func(t *testing.T) { testOperatorGone(t, w) })
			t.Run("upgrade", func(t *testing.T) { testUpgrade(t, w) })
			t.Run("fifty pools", func(t *testing.T) { testFiftyPools(t, w) })
			t.Run("schema", func(t *testing.T) { testSchema(t, w) })
		})
	}
}

// start brings up an API server, installs the CRD and the webhook, and runs the operator.
func start(t *testing.T, flags map[string]string) world {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	environment := &envtest.Environment{
		Scheme:                   scheme,
		ControlPlaneStartTimeout: within,
		ControlPlaneStopTimeout:  within,
		CRDDirectoryPaths:        []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: within},
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MaxTime: within, ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{webhookConfiguration(t)},
		},
	}
	for flag, value := range flags {
		environment.ControlPlane.GetAPIServer().Configure().Set(flag, value)
	}
	admin, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	install := environment.WebhookInstallOptions
	w := world{scheme: scheme, writes: &tally{by: map[string]int{}}}
	if w.Client, err = client.New(admin, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	manager := asManager(t, w, admin)
	if w.manager, err = client.New(manager, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	w.config, w.admin = manager, admin
	mgr, err := ctrl.NewManager(manager, ctrl.Options{
		Scheme:     scheme,
		Cache:      controllers.CacheOptions(),
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		WebhookServer: crwebhook.NewServer(crwebhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir,
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, mgr, w.writes)
	eventually(t, func(ctx context.Context) error { return mgr.GetWebhookServer().StartedChecker()(nil) })
	return w
}

// asManager lets the operator act as its ServiceAccount, with the rules that are
// generated for it and no others.
func asManager(t *testing.T, w world, admin *rest.Config) *rest.Config {
	t.Helper()
	const namespace, name = "pdpool-system", "pdpool-manager"
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(data, &role); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	for _, obj := range []client.Object{&role, binding} {
		if err := w.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return config
}

// run starts controller and webhook, and ends them with the test.
func run(t *testing.T, mgr ctrl.Manager, writes *tally) {
	t.Helper()
	reconciler := &controllers.PDPoolReconciler{
		Client:   counting(mgr.GetClient(), writes),
		Live:     mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder("pdpool"),
		Defaults: pdpool.Defaults{AgentImage: "agent:test", RouterImage: "router:test", SimulatorImage: "sim:test", Ports: pdpool.DefaultPorts},
		Now:      func() time.Time { return time.Now().Truncate(time.Second) },
	}
	if err := (webhook.Validator{}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	startManager(t, mgr, reconciler)
}

// startManager runs a controller until the test ends.
func startManager(t *testing.T, mgr ctrl.Manager, reconciler *controllers.PDPoolReconciler) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// webhookConfiguration is the chart's; envtest replaces the service by its own address.
func webhookConfiguration(t testing.TB) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "default", "pdpool.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if !strings.Contains(document, "\nkind: ValidatingWebhookConfiguration\n") {
			continue
		}
		var c admissionv1.ValidatingWebhookConfiguration
		if err := yaml.UnmarshalStrict([]byte(document), &c); err != nil {
			t.Fatal(err)
		}
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig.Service.Port = nil // envtest puts its own behind it
		}
		return &c
	}
	t.Fatal("the rendered chart has no webhook configuration")
	return nil
}

// namespace makes a namespace of the test's own.
func (w world) namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := w.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// eventually calls check until it returns nil.
func eventually(t testing.TB, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(fmt.Errorf("after %s: %w", within, err))
		case <-tick.C:
		}
	}
}
