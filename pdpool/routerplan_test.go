package pdpool

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/memlimit"
)

// routerPod is the container that the router's Deployment runs.
func (c *cluster) routerPod() corev1.Container {
	c.t.Helper()
	seen := c.observed()
	if len(seen.Deployments) != 1 {
		c.t.Fatalf("%d Deployments", len(seen.Deployments))
	}
	return seen.Deployments[0].Spec.Template.Spec.Containers[0]
}

// TestRouterKnowsItsMemory holds that a router bounds what it takes by its container's
// memory, also when the user has said nothing of it.
func TestRouterKnowsItsMemory(t *testing.T) {
	own := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	for name, c := range map[string]struct {
		given *corev1.ResourceRequirements
		limit string
	}{
		"nothing said": {nil, "512Mi"},
		"the user's":   {&own, "64Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(t, simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Router.Resources = c.given })), 64)
			w.run(30)
			router := w.routerPod()
			if limit := router.Resources.Limits[corev1.ResourceMemory]; limit.String() != c.limit {
				t.Errorf("the limit is %s, want %s", limit.String(), c.limit)
			}
			at := slices.IndexFunc(router.Env, func(e corev1.EnvVar) bool { return e.Name == memlimit.Env })
			if at < 0 {
				t.Fatalf("the environment is %v", router.Env)
			}
			if from := router.Env[at].ValueFrom.ResourceFieldRef; from.ContainerName != router.Name || from.Resource != "limits.memory" {
				t.Errorf("its memory is told from %+v", from)
			}
		})
	}
}

// hears says whether a router listens for registrations.
func hears(c corev1.Container) bool { return slices.Contains(c.Args, "--registrations=:36367") }

// TestRegistrationsByMover holds that the port for registrations is open where engines
// register, and nowhere else.
func TestRegistrationsByMover(t *testing.T) {
	for mover, pool := range map[kvlayout.Mover]*v1alpha1.PDPool{
		kvlayout.MoverAgent: simulatorPool(t), kvlayout.MoverEngine: vllmPool(t),
	} {
		c := newCluster(t, pool, 64)
		c.run(30)
		want := mover == kvlayout.MoverEngine
		router := c.routerPod()
		service := c.objects["Service "+routersName(pool.Name)] != nil
		port := slices.ContainsFunc(router.Ports, func(p corev1.ContainerPort) bool { return p.Name == "registrations" })
		closed := slices.Contains(router.Args, "--registrations=")
		if port != want || hears(router) != want || closed == want || service != want {
			t.Errorf("mover %s: port %v, Service %v, arguments %v", mover, port, service, router.Args)
		}
	}
}

// TestRouterFollowsTheMover holds that another mover is another router, that one which
// hears registrations stays as long as an engine is there that registers, and that the
// pool serves all the while.
func TestRouterFollowsTheMover(t *testing.T) {
	c := newCluster(t, vllmPool(t, replicas(2, 2)), 64)
	c.run(30)
	if !hears(c.routerPod()) {
		t.Fatal("the router of engines that register does not hear them")
	}
	rolled, was := 0, strings.Join(c.routerPod().Args, " ")
	c.check = func(c *cluster) {
		if !c.isTrue("Available") {
			t.Errorf("not available at %s: %v", c.now, c.pool.Status.Conditions)
		}
		registers := slices.ContainsFunc(c.pods(), func(p *corev1.Pod) bool { return strings.Contains(agentEnv(t, p), `"mover":"Engine"`) })
		if now := strings.Join(c.routerPod().Args, " "); now != was {
			rolled, was = rolled+1, now
		}
		if registers && !hears(c.routerPod()) {
			t.Errorf("at %s an engine registers and the router hears nothing", c.now)
		}
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Type, s.Engine.Image = v1alpha1.EngineSimulator, "" })
	c.run(120)
	if hears(c.routerPod()) || rolled != 1 {
		t.Errorf("the router was rolled %d times, with arguments %s", rolled, was)
	}
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Engine.Type, s.Engine.Image = v1alpha1.EngineVLLM, "vllm:v0.33.0" })
	c.run(120)
	if !hears(c.routerPod()) || rolled != 2 {
		t.Errorf("the router was rolled %d times, with arguments %s", rolled, was)
	}
}

// TestRouterRevisionStays holds the revision of routers that exist.
func TestRouterRevisionStays(t *testing.T) {
	for name, c := range map[string]struct {
		pool *v1alpha1.PDPool
		want string
	}{
		"simulator": {simulatorPool(t), "tmvwbhks"},
		"vllm":      {vllmPool(t), "rd5t9tsn"},
	} {
		r := Resolve(c.pool, testDefaults)
		if got := r.routerRevision(c.pool.Spec.Router); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
