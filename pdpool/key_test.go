package pdpool

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

func podsIn(objects []Object) int {
	n := 0
	for _, o := range objects {
		if _, ok := o.(*corev1.Pod); ok {
			n++
		}
	}
	return n
}

func secretsIn(objects []Object) []*corev1.Secret {
	var out []*corev1.Secret
	for _, o := range objects {
		if s, ok := o.(*corev1.Secret); ok {
			out = append(out, s)
		}
	}
	return out
}

// TestSecretComesBeforePods holds that no pod is created without the Secret that
// it mounts, and that the Secret has what its readers want.
func TestSecretComesBeforePods(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.reconcile()
	seen := c.observed()
	for i := range seen.Entropy {
		seen.Entropy[i] = byte(i)
	}
	plan := Compute(c.pool, seen, c.defaults)
	secrets := secretsIn(plan.Create)
	if len(secrets) != 1 || podsIn(plan.Create) != 2 {
		t.Fatalf("%d Secrets and %d pods", len(secrets), podsIn(plan.Create))
	}
	first := slices.IndexFunc(plan.Create, func(o Object) bool { _, pod := o.(*corev1.Pod); return pod })
	if !slices.Contains(plan.Create[:first], Object(secrets[0])) {
		t.Error("a pod is created before the Secret")
	}
	token, err := hex.DecodeString(string(secrets[0].Data[agentconfig.TokenFile]))
	if key := secrets[0].Data[agentconfig.KeyFile]; !slices.Equal(key, seen.Entropy[:32]) || err != nil || !slices.Equal(token, seen.Entropy[32:]) {
		t.Errorf("key %x, token %x (%v)", key, token, err)
	}
}

// TestConvergedPoolNeedsNoSecret holds that the operator, which can't see the
// Secret, does not write it over and over.
func TestConvergedPoolNeedsNoSecret(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.run(30)
	key := "Secret " + keyName(c.pool.Name)
	before := c.objects[key].(*corev1.Secret).DeepCopy()
	if plan := Compute(c.pool, c.observed(), c.defaults); len(plan.Create) > 0 {
		t.Errorf("a converged pool creates %v", plan.Create)
	}
	c.fail(c.pods()[0])
	c.run(60)
	if after := c.objects[key].(*corev1.Secret); !slices.Equal(before.Data[agentconfig.KeyFile], after.Data[agentconfig.KeyFile]) {
		t.Error("a pod that was made anew changed the key")
	}
}

// TestLostSecretIsMadeAnew holds that pods which hang before their start for want
// of the Secret get one.
func TestLostSecretIsMadeAnew(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.reconcile()
	c.turn()
	c.reconcile()
	delete(c.objects, "Secret "+keyName(c.pool.Name))
	c.turn() // both pods get a node, and no sandbox
	plan := c.reconcile()
	if len(secretsIn(plan.Create)) != 1 || podsIn(plan.Create) != 0 || plan.RequeueAfter == 0 || plan.RequeueAfter > hungInterval {
		t.Fatalf("creates %v, looks again after %s", plan.Create, plan.RequeueAfter)
	}
	c.run(30)
	if got := c.attempts(); got["prefill 0"] != "0" || got["decode 0"] != "0" {
		t.Errorf("attempts %v: the pods that hung were not kept", got)
	}
}

// TestDrainToken holds that a pod's hook shows what its agent wants, and that pods
// and pools differ in it.
func TestDrainToken(t *testing.T) {
	shown := map[string]bool{}
	for _, uid := range []string{"a", "b"} {
		c := newCluster(t, simulatorPool(t, func(p *v1alpha1.PDPool) { p.UID = types.UID(uid) }), 16)
		c.reconcile()
		c.reconcile()
		for _, p := range c.pods() {
			cfg, err := agentconfig.Parse([]byte(agentEnv(t, p)))
			if err != nil {
				t.Fatal(err)
			}
			header := p.Spec.Containers[0].Lifecycle.PreStop.HTTPGet.HTTPHeaders[0]
			sum := sha256.Sum256([]byte(header.Value))
			if header.Name != "X-PDPool-Drain" || cfg.DrainToken != hex.EncodeToString(sum[:]) || cfg.KeyDir != "/etc/pdpool/key" {
				t.Errorf("pod %s shows %s %q, its agent wants %q", p.Name, header.Name, header.Value, cfg.DrainToken)
			}
			shown[header.Value] = true
		}
	}
	if len(shown) != 4 {
		t.Errorf("4 pods show %d tokens", len(shown))
	}
}

// TestRecordWithoutKey holds that a record of an operator that knew no secret makes
// the pods that it made then: its agents don't know the token.
func TestRecordWithoutKey(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.reconcile()
	v := revisionsOf(c.observed().ControllerRevisions, "decode")[0]
	v.record.Agent.KeyDir = ""
	pod, err := v.pod(c.pool, 0, 0, 0, 20000)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := agentconfig.Parse([]byte(agentEnv(t, pod)))
	if err != nil || cfg.DrainToken != "" {
		t.Errorf("token %q (%v)", cfg.DrainToken, err)
	}
}
