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

var _ = Describe("Under load, every request ends with a reason, and all is right again, when", func() {
	// limit is the longest deadline that a trial pool sets, with room for a slow machine.
	const limit = 40 * time.Second
	shape := loadShape{clients: 4, prompt: 300, tokens: 4, patience: time.Minute}
	slow := []string{"--sim-prefill-ms-per-layer=50"}

	start := func(ctx context.Context, s setup) (pool, *load) {
		needMachine()
		namespace := newNamespace(ctx)
		p := s.start(ctx, namespace, "pool")
		l := p.load(ctx, shape)
		l.served(ctx, 4)
		return p, l
	}
	finish := func(ctx context.Context, name string, p pool, l *load, mayBreak bool) {
		Expect(k8s.WaitReady(ctx, p.namespace, p.name, readyWithin)).To(Succeed())
		p.right(ctx, 7)
		l.served(ctx, 4)
		outcomes := l.end()
		show(name, outcomes)
		reasoned(outcomes, limit, mayBreak)
		p.quiet(ctx)
	}

	It("decode is killed", func(ctx context.Context) {
		p, l := start(ctx, setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", prefillArgs: slow})
		old, _ := p.pod(ctx, v1alpha1.RoleDecode)
		Expect(machine.Signal(&old, "enginesim", syscall.SIGKILL)).To(Succeed())
		Expect(k8s.WaitGone(ctx, &old, goneWithin)).To(Succeed())
		finish(ctx, "decode killed", p, l, false)
	})

	It("a router is killed", func(ctx context.Context) {
		p, l := start(ctx, setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", prefillArgs: slow, routers: 2})
		routers := p.routers(ctx)
		Expect(routers).To(HaveLen(2))
		for i := range routers {
			Expect(machine.Signal(&routers[i], "router", syscall.SIGKILL)).To(Succeed())
			Eventually(func(g Gomega, ctx context.Context) {
				pod := &corev1.Pod{}
				g.Expect(k8s.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: routers[i].Name}, pod)).To(Succeed())
				g.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeNumerically(">", 0))
				g.Expect(pod.Status.ContainerStatuses[0].Ready).To(BeTrue())
			}).WithContext(ctx).Should(Succeed())
		}
		// Who was connected to it can be told nothing.
		finish(ctx, "router killed", p, l, true)
	})

	It("the API server is killed, which no request even notices", func(ctx context.Context) {
		p, l := start(ctx, setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", prefillArgs: slow})
		before, err := k8s.Pods(ctx, p.namespace, p.name, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(machine.KillControlPlane(ctx, "kube-apiserver")).To(Succeed())
		l.served(ctx, 20)
		Eventually(func(ctx context.Context) error {
			_, err := k8s.Pool(ctx, p.namespace, p.name)
			return err
		}).WithContext(ctx).Should(Succeed())
		finish(ctx, "API server killed", p, l, false)
		for _, o := range l.outcomes {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		after, err := k8s.Pods(ctx, p.namespace, p.name, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(uids(after)).To(Equal(uids(before)))
	})

	DescribeTable("an agent is frozen", func(ctx context.Context, role string) {
		p, l := start(ctx, setup{
			model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP",
			// Whose own agent is silent can only wait for its own deadline, a little
			// longer than those of the agents.
			prefillArgs: append([]string{"--sim-agent-silence-ms=25000"}, slow...), decodeArgs: []string{"--sim-agent-silence-ms=25000"},
		})
		pod, _ := p.pod(ctx, role)
		Expect(machine.Signal(&pod, "transfer-agent", syscall.SIGSTOP)).To(Succeed())
		thawed := false
		DeferCleanup(func(ctx context.Context) {
			if !thawed {
				_ = machine.Signal(&pod, "transfer-agent", syscall.SIGCONT)
			}
		})
		// The kubelet sees that the agent doesn't answer, and the router stops to use it.
		Eventually(func(g Gomega, ctx context.Context) {
			_, ready, _ := agentState(ctx, p.namespace, pod.Name)
			g.Expect(ready).To(BeFalse())
		}).WithContext(ctx).Should(Succeed())
		all, _ := l.count()
		Eventually(func() int { n, _ := l.count(); return n }).WithContext(ctx).Should(BeNumerically(">", all+8), "answered while it is frozen")
		thawed = true
		Expect(machine.Signal(&pod, "transfer-agent", syscall.SIGCONT)).To(Succeed())
		finish(ctx, "agent of "+role+" frozen", p, l, false)
	},
		Entry("of prefill", v1alpha1.RolePrefill),
		Entry("of decode", v1alpha1.RoleDecode),
	)
})

func uids(pods []corev1.Pod) map[types.UID]string {
	out := map[types.UID]string{}
	for _, pod := range pods {
		out[pod.UID] = pod.Name
	}
	return out
}
