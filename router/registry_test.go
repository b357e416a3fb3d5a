package router

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/router/policy"
)

// pairsOf lists the pairs that can be chosen, by port of the engines.
func pairsOf(r *Registry, model string) (pairs []string, refusal *Refusal) {
	t, refusal := r.current.Load().table(model)
	if refusal != nil {
		return nil, refusal
	}
	for _, p := range t.prefills {
		for _, d := range t.partners[p.instance] {
			pairs = append(pairs, fmt.Sprintf("%d.%d-%d.%d", p.pod.HTTP, p.rank, d.pod.HTTP, d.rank))
		}
	}
	return pairs, nil
}

func TestPairing(t *testing.T) {
	at := func(role kvlayout.Role, port int, change ...func(*Instance)) Instance {
		i := instanceAt(role, port)
		for _, c := range change {
			c(&i)
		}
		return i
	}
	prefill := func(port int, change ...func(*Instance)) Instance { return at(kvlayout.Prefill, port, change...) }
	decode := func(port int, change ...func(*Instance)) Instance { return at(kvlayout.Decode, port, change...) }
	key := func(k string) func(*Instance) { return func(i *Instance) { i.Pairing = k } }
	notReady := func(i *Instance) { i.Ready = false }
	draining := func(i *Instance) { i.Draining = true }
	layout := func(l kvlayout.Layout) func(*Instance) { return func(i *Instance) { i.Layout = l } }
	onNode := func(n string) func(*Instance) { return func(i *Instance) { i.OneHost = true; i.Pods[0].Node = n } }
	reads := func(i *Instance) { i.Mode = kvlayout.Read }
	engine := func(i *Instance) { i.Mover, i.Engine = kvlayout.MoverEngine, kvlayout.VLLM }
	// heads is a llama on a stock engine, whose TP degrees may differ since 0.33.0.
	heads := func(tp int, version string) func(*Instance) {
		return func(i *Instance) {
			engine(i)
			i.KV, _ = kvlayout.Lookup("meta-llama/Llama-3.3-70B-Instruct")
			i.Version, i.Layout = version, kvlayout.Layout{TP: tp}
		}
	}
	stock := func(i *Instance) {
		*i = Instance{Role: i.Role, Mode: kvlayout.Write, Mover: kvlayout.MoverEngine, Engine: kvlayout.VLLM, Ready: true, Layout: kvlayout.Layout{TP: 8}, Pods: i.Pods}
	}
	for _, c := range []struct {
		name      string
		instances []Instance
		want      string // pairs, else the refusal's rule
		text      string
	}{
		{"one pair", []Instance{prefill(1), decode(2)}, "1.0-2.0", ""},
		{"each with each", []Instance{prefill(1), prefill(2), decode(3), decode(4)}, "1.0-3.0 1.0-4.0 2.0-3.0 2.0-4.0", ""},
		{"keys apart", []Instance{prefill(1), prefill(2, key("b")), decode(3), decode(4, key("b"))}, "1.0-3.0 2.0-4.0", ""},
		{"no key alike", []Instance{prefill(1), decode(3, key("b"))}, RuleNoPair, "pairing key"},
		{"no prefill", []Instance{decode(3)}, RuleNoInstance, "no prefill replica is ready: 0 known"},
		{"no decode", []Instance{prefill(1), decode(2, notReady), decode(3, draining)}, RuleNoInstance, "no decode replica is ready: 2 known, 1 draining"},
		{"draining gets nothing", []Instance{prefill(1, draining), prefill(2), decode(3)}, "2.0-3.0", ""},
		{"not ready gets nothing", []Instance{prefill(1), decode(2, notReady), decode(3)}, "1.0-3.0", ""},
		{"layouts that do not fit", []Instance{prefill(1, layout(kvlayout.Layout{TP: 4, DCP: 2})), decode(2)}, "dcp-mix", "prefill"},
		{"one that fits", []Instance{prefill(1, layout(kvlayout.Layout{TP: 4, DCP: 2})), prefill(3), decode(2)}, "3.0-2.0", ""},
		{"same node only", []Instance{prefill(1, onNode("a")), prefill(2, onNode("b")), decode(3, onNode("b"))}, "2.0-3.0", ""},
		{"no node alike", []Instance{prefill(1, onNode("a")), decode(3, onNode("b"))}, RuleNoPair, "one node"},
		{"unknown node", []Instance{prefill(1, onNode("")), decode(3, onNode(""))}, RuleNoPair, "one node"},
		{"mode READ", []Instance{prefill(1, reads), decode(2, reads)}, ruleMode, "Read"},
		{"modes apart", []Instance{prefill(1, reads), decode(2)}, RuleNoPair, "Read"},
		{"movers apart", []Instance{prefill(1, engine), decode(2)}, RuleNoPair, "mover"},
		{"stock", []Instance{prefill(1, stock), decode(2, stock)}, "1.0-2.0", ""},
		{"stock and pool apart", []Instance{prefill(1, stock), decode(2)}, RuleNoPair, ""},
		{"ranks", []Instance{prefill(1, layout(kvlayout.Layout{TP: 1, DP: 2})), decode(2, layout(kvlayout.Layout{TP: 1, DP: 2}))}, "1.0-2.0 1.0-2.1 1.1-2.0 1.1-2.1", ""},
		{"versions that can", []Instance{prefill(1, heads(4, "0.33.0")), decode(2, heads(8, "0.33.0"))}, "1.0-2.0", ""},
		{"an old prefill", []Instance{prefill(1, heads(4, "0.32.0")), decode(2, heads(8, "0.33.0"))}, "tp-write", "0.32.0"},
		{"an old decode", []Instance{prefill(1, heads(4, "0.33.0")), decode(2, heads(8, "0.32.0"))}, "tp-write", "0.32.0"},
		{"versions unknown", []Instance{prefill(1, heads(4, "")), decode(2, heads(8, ""))}, "1.0-2.0", ""},
		{"nothing known", nil, RuleNoInstance, "0 known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRegistry()
			r.Source("test").Publish(c.instances)
			pairs, refusal := pairsOf(r, "m")
			got := strings.Join(pairs, " ")
			if refusal != nil {
				got = refusal.Rule
				if !strings.Contains(refusal.Text, c.text) {
					t.Errorf("text %q lacks %q", refusal.Text, c.text)
				}
			}
			if got != c.want {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}

func TestModels(t *testing.T) {
	r := NewRegistry()
	other := func(i Instance) Instance { i.Model = "o"; return i }
	r.Source("test").Publish([]Instance{
		instanceAt(kvlayout.Prefill, 1), instanceAt(kvlayout.Decode, 2),
		other(instanceAt(kvlayout.Prefill, 3)), other(instanceAt(kvlayout.Decode, 4)),
	})
	for model, want := range map[string]string{"m": "[1.0-2.0]", "o": "[3.0-4.0]"} {
		if pairs, _ := pairsOf(r, model); fmt.Sprint(pairs) != want {
			t.Errorf("%s: %v", model, pairs)
		}
	}
	if _, refusal := pairsOf(r, "x"); refusal == nil || refusal.Rule != RuleNoModel {
		t.Errorf("unknown model: %v", refusal)
	}
	if n := r.current.Load().pairs(); n != 2 {
		t.Errorf("%d pairs", n)
	}
}

// TestSourcesMeet holds who is believed about a pod that several sources know.
func TestSourcesMeet(t *testing.T) {
	r := NewRegistry()
	pods, heartbeats := r.Source("pods"), r.Overlay("heartbeats")
	if fmt.Sprint(r.Waiting()) != "[pods heartbeats]" {
		t.Errorf("waiting for %v", r.Waiting())
	}
	prefill, decode := instanceAt(kvlayout.Prefill, 1), instanceAt(kvlayout.Decode, 2)
	pods.Publish([]Instance{prefill, decode})
	heartbeats.Publish([]Instance{prefill, decode, instanceAt(kvlayout.Decode, 3)})
	if len(r.Waiting()) > 0 {
		t.Errorf("waiting for %v", r.Waiting())
	}
	if pairs, _ := pairsOf(r, "m"); fmt.Sprint(pairs) != "[1.0-2.0]" {
		t.Errorf("an overlay made an instance: %v", pairs)
	}
	said := decode
	said.Draining = true
	heartbeats.Publish([]Instance{said})
	if _, refusal := pairsOf(r, "m"); refusal == nil || refusal.Rule != RuleNoInstance {
		t.Errorf("draining is not believed: %v", refusal)
	}
	said.Draining, said.Mode = false, kvlayout.Read
	heartbeats.Publish([]Instance{said})
	if _, refusal := pairsOf(r, "m"); refusal == nil || !strings.Contains(refusal.Text, "Read") {
		t.Errorf("a changed mode is not believed: %v", refusal)
	}
	heartbeats.Publish(nil)
	prefill.Ready = false
	pods.Publish([]Instance{prefill, decode})
	heartbeats.Publish([]Instance{instanceAt(kvlayout.Prefill, 1)})
	if _, refusal := pairsOf(r, "m"); refusal == nil {
		t.Error("a heartbeat made routable what is not ready")
	}
}

func TestPodsWithoutAddressAreApart(t *testing.T) {
	r := NewRegistry()
	a, b := instanceAt(kvlayout.Prefill, 1), instanceAt(kvlayout.Prefill, 1)
	a.Ready, b.Ready, a.Pods[0].Host, b.Pods[0].Host = false, false, "", ""
	r.Source("first").Publish([]Instance{a})
	r.Source("second").Publish([]Instance{b})
	if n := len(r.current.Load().instances); n != 2 {
		t.Errorf("%d instances", n)
	}
}

// TestLoadOutlivesSnapshots: a rank keeps what it has to do when others come.
func TestLoadOutlivesSnapshots(t *testing.T) {
	r := NewRegistry()
	s := r.Source("test")
	prefill, decode := instanceAt(kvlayout.Prefill, 1), instanceAt(kvlayout.Decode, 2)
	s.Publish([]Instance{prefill, decode})
	before, _ := r.current.Load().table("m")
	before.prefills[0].open.Add(5)
	s.Publish([]Instance{prefill, decode, instanceAt(kvlayout.Prefill, 3)})
	after, _ := r.current.Load().table("m")
	if after.prefills[0].open.Load() != 5 {
		t.Error("the load is lost")
	}
	after.prefills[0].open.Store(0)
	s.Publish(nil)
	if len(r.loads) != 0 {
		t.Errorf("%d loads are kept of ranks that are gone", len(r.loads))
	}
}

// TestManyInstances holds that a pool of the largest size is paired in a moment.
func TestManyInstances(t *testing.T) {
	r := NewRegistry()
	var all []Instance
	for i := range 256 {
		all = append(all, instanceAt(kvlayout.Prefill, 1000+i), instanceAt(kvlayout.Decode, 2000+i))
	}
	r.Source("test").Publish(all)
	if n := r.current.Load().pairs(); n != 256*256 {
		t.Errorf("%d pairs", n)
	}
}

func BenchmarkPublish(b *testing.B) {
	r := NewRegistry()
	s := r.Source("test")
	var all []Instance
	for i := range 64 {
		all = append(all, instanceAt(kvlayout.Prefill, 1000+i), instanceAt(kvlayout.Decode, 2000+i))
	}
	for b.Loop() {
		s.Publish(all)
	}
}

// TestShunnedRanksAreAvoided: who could not be reached is passed over while there
// is another.
func TestShunnedRanksAreAvoided(t *testing.T) {
	for _, p := range []policy.Policy{policy.LeastLoaded{}, new(policy.RoundRobin)} {
		r := newRig(t, func(o *Options) { o.Policy = func() policy.Policy { return p }; o.Random = rand.IntN })
		dead := newEngine(t)
		dead.Close()
		r.instances = append(r.instances, instanceAt(kvlayout.Prefill, dead.port()))
		r.publish()
		failures := 0
		for range 20 {
			if a := r.post(t, completions, simple); a.status != 200 {
				failures++
			}
		}
		if failures > 1 {
			t.Errorf("%T: %d requests failed, at most the first may", p, failures)
		}
	}
}
