package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fake "k8s.io/client-go/tools/cache/testing"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/router"
	"github.com/pdpool/pdpool/router/policy"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// enginePod is a ready pod as the operator makes it.
func enginePod(role kvlayout.Role, replica, attempt, index, pods int, change ...func(*agentconfig.Instance)) *corev1.Pod {
	g, _ := kvlayout.Lookup("deepseek-ai/DeepSeek-R1")
	i := agentconfig.Instance{
		Layout: kvlayout.Layout{TP: 4}, Block: 64, KVType: kvlayout.BF16, KV: g, Engine: kvlayout.Simulator,
		Mover: kvlayout.MoverAgent, Mode: kvlayout.Write, Backend: agentconfig.TCP, Pods: pods, Pod: index, Model: "m",
	}
	if pods > 1 {
		i.Layout = kvlayout.Layout{TP: 4, DP: 2 * pods, DPLocal: 2}
		i.DPStart = 2 * index
	}
	for _, c := range change {
		c(&i)
	}
	base := 20000 + 64*replica
	ports := agentconfig.Ports{HTTP: base, Agent: base + 1, Handshake: base + 2, Notify: base + 3, EngineHandshake: base + 32, EngineNotify: base + 48}
	ip := fmt.Sprintf("10.%d.%d.%d", len(role), replica, 10*attempt+index+1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("p-%s-%d-%d-%d", role, replica, attempt, index),
			Labels: map[string]string{
				v1alpha1.LabelPool: "p", v1alpha1.LabelRole: string(role), v1alpha1.LabelReplica: fmt.Sprint(replica),
				v1alpha1.LabelAttempt: fmt.Sprint(attempt), v1alpha1.LabelPod: fmt.Sprint(index),
				v1alpha1.LabelRevision: "rev", v1alpha1.LabelPairing: "key",
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationPods: fmt.Sprint(pods), v1alpha1.AnnotationLayout: i.Encode(), v1alpha1.AnnotationPorts: ports.Encode(),
			},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func TestInstance(t *testing.T) {
	instances, problems := Instances([]*corev1.Pod{enginePod(kvlayout.Prefill, 3, 2, 0, 1)})
	if len(problems) > 0 || len(instances) != 1 {
		t.Fatalf("%v, %v", instances, problems)
	}
	g, _ := kvlayout.Lookup("deepseek-ai/DeepSeek-R1")
	want := router.Instance{
		Namespace: "ns", Pool: "p", Role: kvlayout.Prefill, Replica: 3, Attempt: 2, Revision: "rev", Pairing: "key",
		Layout: kvlayout.Layout{TP: 4}, Block: 64, KVType: kvlayout.BF16, KV: g, Engine: kvlayout.Simulator,
		Mover: kvlayout.MoverAgent, Mode: kvlayout.Write, Model: "m", Ready: true,
		Pods: []router.Pod{{Name: "p-prefill-3-2-0", Node: "n1", Host: "10.7.3.21", HTTP: 20192, Agent: 20193, Handshake: 20194, Notify: 20195}},
	}
	if got, expected := fmt.Sprintf("%+v", instances[0]), fmt.Sprintf("%+v", want); got != expected {
		t.Errorf("\n%s, not\n%s", got, expected)
	}
}

func TestEngineMoverUsesTheEnginesPorts(t *testing.T) {
	instances, _ := Instances([]*corev1.Pod{enginePod(kvlayout.Prefill, 0, 0, 0, 1, func(i *agentconfig.Instance) {
		i.Engine, i.Mover, i.Backend = kvlayout.VLLM, kvlayout.MoverEngine, agentconfig.RDMA
	})})
	if p := instances[0].Pods[0]; p.Handshake != 20032 || p.Notify != 20048 {
		t.Errorf("%+v", p)
	}
}

func TestRoutable(t *testing.T) {
	two := func() []*corev1.Pod {
		return []*corev1.Pod{enginePod(kvlayout.Decode, 0, 0, 0, 2), enginePod(kvlayout.Decode, 0, 0, 1, 2)}
	}
	for name, c := range map[string]struct {
		change          func([]*corev1.Pod) []*corev1.Pod
		ready, draining bool
	}{
		"whole":         {func(p []*corev1.Pod) []*corev1.Pod { return p }, true, false},
		"a pod missing": {func(p []*corev1.Pod) []*corev1.Pod { return p[:1] }, false, false},
		"first missing": {func(p []*corev1.Pod) []*corev1.Pod { return p[1:] }, false, false},
		"one not ready": {func(p []*corev1.Pod) []*corev1.Pod {
			p[1].Status.Conditions[0].Status = corev1.ConditionFalse
			return p
		}, false, false},
		"no condition":   {func(p []*corev1.Pod) []*corev1.Pod { p[1].Status.Conditions = nil; return p }, false, false},
		"no address":     {func(p []*corev1.Pod) []*corev1.Pod { p[1].Status.PodIP, p[1].Status.PodIPs = "", nil; return p }, false, false},
		"one is deleted": {func(p []*corev1.Pod) []*corev1.Pod { p[1].DeletionTimestamp = &metav1.Time{}; return p }, true, true},
		"one has ended":  {func(p []*corev1.Pod) []*corev1.Pod { p[1].Status.Phase = corev1.PodFailed; return p }, false, false},
		"of two attempts": {func(p []*corev1.Pod) []*corev1.Pod {
			p[1].Labels[v1alpha1.LabelAttempt] = "1"
			return p
		}, false, false},
		"of two revisions": {func(p []*corev1.Pod) []*corev1.Pod {
			p[1].Labels[v1alpha1.LabelRevision] = "other"
			return p
		}, false, false},
	} {
		instances, problems := Instances(c.change(two()))
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		ready, draining := false, false
		for _, i := range instances {
			ready, draining = ready || i.Ready, draining || i.Draining
		}
		if ready != c.ready || draining != c.draining {
			t.Errorf("%s: ready %v, draining %v", name, ready, draining)
		}
	}
}

func TestPodsOfAReplicaAreInOrder(t *testing.T) {
	instances, _ := Instances([]*corev1.Pod{enginePod(kvlayout.Decode, 0, 0, 1, 2), enginePod(kvlayout.Decode, 0, 0, 0, 2)})
	if len(instances) != 1 || !instances[0].Ready {
		t.Fatalf("%+v", instances)
	}
	for n, p := range instances[0].Pods {
		if p.Index != n || p.DPStart != 2*n {
			t.Errorf("pod %d: %+v", n, p)
		}
	}
}

func TestBackendWithinANode(t *testing.T) {
	for backend, want := range map[agentconfig.Backend]bool{agentconfig.TCP: false, agentconfig.SharedMemory: true, agentconfig.XGMI: true, agentconfig.RDMA: false} {
		pod := enginePod(kvlayout.Decode, 0, 0, 0, 1, func(i *agentconfig.Instance) {
			if i.Backend = backend; backend == agentconfig.XGMI || backend == agentconfig.RDMA {
				i.Engine, i.Version, i.Mover = kvlayout.VLLM, "0.33.0", kvlayout.MoverEngine
			}
		})
		stripped, err := strip(pod)
		if err != nil {
			t.Fatal(err)
		}
		instances, problems := Instances([]*corev1.Pod{stripped.(*corev1.Pod)})
		if len(instances) != 1 || instances[0].OneHost != want || !instances[0].Ready {
			t.Fatalf("%s: %+v, %v", backend, instances, problems)
		}
		if i := instances[0]; (i.Engine == kvlayout.VLLM) != (i.Version == "0.33.0") {
			t.Errorf("%s: engine %s of version %q", backend, i.Engine, i.Version)
		}
	}
}

func TestPodsThatSayTooLittle(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"pairing": func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelPairing) },
		"replica": func(p *corev1.Pod) { p.Labels[v1alpha1.LabelReplica] = "x" },
		"attempt": func(p *corev1.Pod) { p.Labels[v1alpha1.LabelAttempt] = "-1" },
		"pods":    func(p *corev1.Pod) { delete(p.Annotations, v1alpha1.AnnotationPods) },
		"layout":  func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationLayout] = `{"layout":{}}` },
		"ports":   func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationPorts] = `{` },
	} {
		pod := enginePod(kvlayout.Prefill, 0, 0, 0, 1)
		change(pod)
		instances, problems := Instances([]*corev1.Pod{pod})
		if len(instances) > 0 || !strings.Contains(problems[pod.Name], name) {
			t.Errorf("%s: %v, %v", name, instances, problems)
		}
	}
	odd := enginePod(kvlayout.Decode, 0, 0, 1, 2, func(i *agentconfig.Instance) { i.Layout.TP = 8 })
	instances, problems := Instances([]*corev1.Pod{enginePod(kvlayout.Decode, 0, 0, 0, 2), odd})
	if len(instances) > 0 || len(problems) != 1 {
		t.Errorf("layouts apart: %v, %v", instances, problems)
	}
}

// world is a registry that is fed from a watch, and a router that shows it.
type world struct {
	*router.Registry
	handler http.Handler
}

func watch(t *testing.T, pods cache.ListerWatcher) *world {
	t.Helper()
	registry := router.NewRegistry()
	o := router.Defaults()
	o.Registry, o.Log, o.Random = registry, slog.New(slog.DiscardHandler), rand.IntN
	o.Policy = func() policy.Policy { return policy.LeastLoaded{} }
	server := router.NewServer(o)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	source := registry.Source("Kubernetes")
	go func() { done <- Watch(ctx, pods, source, o.Log) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the watch does not end")
		}
		server.Close(ctx)
	})
	return &world{Registry: registry, handler: server.OpsHandler()}
}

func (w *world) becomes(t *testing.T, pairs int) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		r := httptest.NewRecorder()
		w.handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		if len(w.Waiting()) == 0 && strings.Contains(r.Body.String(), fmt.Sprintf("pdpool_router_pairs %d\n", pairs)) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not %d pairs within %v", pairs, patience)
		}
	}
}

func TestWatchFollowsPods(t *testing.T) {
	source := fake.NewFakeControllerSource()
	t.Cleanup(source.Broadcaster.Shutdown)
	source.Add(enginePod(kvlayout.Prefill, 0, 0, 0, 1))
	w := watch(t, source)
	w.becomes(t, 0)
	decode := enginePod(kvlayout.Decode, 0, 0, 0, 1)
	starting := decode.DeepCopy()
	starting.Status.Conditions[0].Status = corev1.ConditionFalse
	source.Add(starting)
	source.Modify(decode)
	w.becomes(t, 1)
	ending := decode.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	source.Modify(ending)
	w.becomes(t, 0)
	source.Delete(ending)
	source.Add(enginePod(kvlayout.Decode, 0, 1, 0, 1))
	w.becomes(t, 1)
	other := enginePod(kvlayout.Decode, 1, 0, 0, 1)
	other.Labels[v1alpha1.LabelPairing] = "other"
	source.Add(other)
	source.Add(enginePod(kvlayout.Prefill, 1, 0, 0, 1))
	w.becomes(t, 2) // both prefills with decode 0, none with decode 1
}

// TestPodsFromAServer lists and watches over HTTP, as in a cluster.
func TestPodsFromAServer(t *testing.T) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, pod := range []*corev1.Pod{enginePod(kvlayout.Prefill, 0, 0, 0, 1), enginePod(kvlayout.Decode, 0, 0, 0, 1)} {
		list.Items = append(list.Items, *pod)
	}
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path + " " + r.URL.Query().Get("labelSelector"):
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("sendInitialEvents") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity) // as servers that can't stream lists
			return
		}
		if r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close) // after the watch has ended
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"k","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"users":[{"name":"u"}]}`, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Config(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pods, err := Pods(config, "ns", "p")
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, pods)
	w.becomes(t, 1)
	want := "/api/v1/namespaces/ns/pods pdpool.dev/pool=p,pdpool.dev/role in (decode,prefill)"
	if got := <-asked; got != want {
		t.Errorf("the server was asked %q, not %q", got, want)
	}
}

func TestWatchEndsBeforeItBegan(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	pods, err := Pods(&rest.Config{Host: down.URL}, "ns", "p")
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t, pods)
	if fmt.Sprint(w.Waiting()) != "[Kubernetes]" {
		t.Errorf("waiting for %v", w.Waiting())
	}
}

func TestBadConfiguration(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := Config(""); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("outside of a cluster: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := Config(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("no such file: %v", err)
	}
	if _, err := Pods(&rest.Config{}, "ns", "a pool"); err == nil || !strings.Contains(err.Error(), `"a pool"`) {
		t.Errorf("a bad name: %v", err)
	}
}

// TestWhatOthersWriteIsNotKept: it takes no memory, and makes no pair anew.
func TestWhatOthersWriteIsNotKept(t *testing.T) {
	plain, noisy := enginePod(kvlayout.Decode, 0, 0, 0, 1), enginePod(kvlayout.Decode, 0, 0, 0, 1)
	noisy.Annotations["example.org/status"] = strings.Repeat("x", 1<<20)
	noisy.Labels["example.org/team"] = "a"
	var seen [][]router.Instance
	for _, pod := range []*corev1.Pod{plain, noisy} {
		stripped, err := strip(pod)
		if err != nil {
			t.Fatal(err)
		}
		kept := stripped.(*corev1.Pod)
		for _, words := range []map[string]string{kept.Labels, kept.Annotations} {
			for key := range words {
				if strings.HasPrefix(key, "example.org/") {
					t.Errorf("%s is kept", key)
				}
			}
		}
		instances, problems := Instances([]*corev1.Pod{kept})
		if len(problems) > 0 {
			t.Error(problems)
		}
		seen = append(seen, instances)
	}
	if !reflect.DeepEqual(seen[0], seen[1]) {
		t.Errorf("%+v and %+v", seen[0], seen[1])
	}
}
