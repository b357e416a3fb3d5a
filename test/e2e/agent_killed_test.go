package e2e

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// agentState is a pod's agent as the kubelet tells.
func agentState(ctx context.Context, namespace, name string) (restarts int32, ready bool, uid types.UID) {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Expect(k8s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod)).To(Succeed())
	for _, c := range pod.Status.InitContainerStatuses {
		if c.Name == v1alpha1.ContainerAgent {
			return c.RestartCount, c.Ready, pod.UID
		}
	}
	return 0, false, pod.UID
}

var _ = Describe("An agent that is killed alone", func() {
	const rounds = 20

	It("comes back in the same pod, twenty times under load: what was in flight fails with a reason, the next prompt is right, no block is held", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{
			model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP",
			prefillArgs: []string{"--sim-prefill-ms-per-layer=50"},
		}.start(ctx, namespace, "pool")
		l := p.load(ctx, loadShape{clients: 4, prompt: 300, tokens: 4, patience: time.Minute})
		l.served(ctx, 4)
		for round := range rounds {
			role := []string{v1alpha1.RolePrefill, v1alpha1.RoleDecode}[round%2]
			pod, ports := p.pod(ctx, role)
			before, _, uid := agentState(ctx, namespace, pod.Name)
			Eventually(func(g Gomega, ctx context.Context) {
				g.Expect(p.live(ctx, &pod, ports.HTTP)).To(BeNumerically(">", 0))
			}).WithContext(ctx).WithPolling(20 * time.Millisecond).Should(Succeed())
			Expect(machine.Signal(&pod, "transfer-agent", syscall.SIGKILL)).To(Succeed())
			Eventually(func(g Gomega, ctx context.Context) {
				restarts, ready, now := agentState(ctx, namespace, pod.Name)
				g.Expect(now).To(Equal(uid))
				g.Expect(restarts).To(BeNumerically(">", before))
				g.Expect(ready).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
			p.right(ctx, round)
		}
		outcomes := l.end()
		show("agent killed 20 times", outcomes)
		failed := reasoned(outcomes, 30*time.Second, false)
		Expect(failed).NotTo(BeEmpty(), "requests were in flight")
		p.quiet(ctx)
		pods, err := k8s.Pods(ctx, namespace, p.name, "")
		Expect(err).NotTo(HaveOccurred())
		for _, pod := range pods {
			Expect(pod.Labels[v1alpha1.LabelAttempt]).To(Equal("0"), "the pods are the first ones")
			for _, c := range pod.Status.ContainerStatuses {
				Expect(c.RestartCount).To(BeZero(), "the engine went on")
			}
		}
	})
})

// live is how many requests an engine has.
func (p pool) live(ctx context.Context, pod *corev1.Pod, port int) int64 {
	GinkgoHelper()
	var state struct{ Groups []struct{ Live int64 } }
	Expect(k8s.GetJSON(ctx, p.namespace, pod.Name, port, "/sim/state", &state)).To(Succeed())
	var live int64
	for _, g := range state.Groups {
		live += g.Live
	}
	return live
}
