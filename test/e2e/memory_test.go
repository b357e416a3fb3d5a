package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// bounded checks a process's cgroup: its limit was there, was never passed, and
// killed nobody.
func bounded(pod *corev1.Pod, process string, limit int64) {
	GinkgoHelper()
	m, err := machine.Memory(pod, process)
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry("memory", fmt.Sprintf("%s of %s: %.1f MiB now, %.1f at the most, %d limit",
		process, pod.Name, float64(m.Now)/mebibyte, float64(m.Peak)/mebibyte, m.Limit/mebibyte), ReportEntryVisibilityAlways)
	Expect(m.Limit).To(Equal(limit), process)
	Expect(m.Peak).To(BeNumerically("<=", limit), process)
	Expect(m.OOMKills).To(BeZero(), process)
}

// unrestarted checks that no container of a pod has ever started twice.
func unrestarted(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	now := &corev1.Pod{}
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pod), now)).To(Succeed())
	for _, c := range append(now.Status.InitContainerStatuses, now.Status.ContainerStatuses...) {
		Expect(c.RestartCount).To(BeZero(), c.Name+" of "+pod.Name)
	}
}

var _ = Describe("Under a memory limit of its pod", func() {
	DescribeTable("an agent serves 64 transfers in flight within 64 MiB", func(ctx context.Context, backend string) {
		needMachine()
		namespace := newNamespace(ctx)
		big := smallMLA
		big.memory = "64Mi"
		p := setup{
			model: big, prefill: tp(2), decode: dcp(2, 2, 1), backend: backend, memory: "64Mi",
			prefillArgs: []string{"--sim-prefill-ms-per-layer=500"},
		}.start(ctx, namespace, "pool")
		l := p.load(ctx, loadShape{clients: 72, prompt: 1000, tokens: 4, patience: time.Minute, total: 216})
		decode, ports := p.pod(ctx, v1alpha1.RoleDecode)
		prefill, _ := p.pod(ctx, v1alpha1.RolePrefill)
		most := int64(0)
		Eventually(func(ctx context.Context) int64 {
			most = max(most, p.live(ctx, &decode, ports.HTTP))
			return most
		}).WithContext(ctx).Should(BeNumerically(">=", 64), "transfers at once")
		outcomes := l.wait()
		show("64 transfers", outcomes)
		for _, o := range outcomes {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		for _, pod := range []corev1.Pod{prefill, decode} {
			bounded(&pod, "transfer-agent", 64*mebibyte)
			unrestarted(ctx, &pod)
		}
		p.quiet(ctx)
	},
		Entry("of TCP", "TCP"),
		Entry("of shared memory, beside the engine's own", "SharedMemory"),
	)

	It("a router serves 256 streams within 64 MiB", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		big := smallMLA
		big.memory = "64Mi"
		p := setup{
			model: big, prefill: tp(1), decode: tp(1), backend: "SharedMemory", routerMemory: "64Mi",
			decodeArgs: []string{"--sim-ms-per-token=100", "--sim-max-queue=512"}, prefillArgs: []string{"--sim-max-queue=512"},
		}.start(ctx, namespace, "pool")
		routers := p.routers(ctx)
		Expect(routers).To(HaveLen(1))
		streams, stop := context.WithTimeout(ctx, 2*time.Minute)
		defer stop()
		target, prompt := p.address(ctx), words(3, 100)
		want := p.model.answer(prompt, 120)
		var clients sync.WaitGroup
		outcomes := make([]outcome, 256)
		// One after the other within four seconds: 512 connections at once are the
		// engines' trial, not the router's.
		ramp := time.NewTicker(15 * time.Millisecond)
		defer ramp.Stop()
		for i := range outcomes {
			<-ramp.C
			clients.Go(func() {
				o := &outcomes[i]
				o.want, o.began = want, time.Now()
				o.Completion, o.err = k8s.Complete(streams, namespace, target, p.model.name, prompt, 120, func(string) {})
				o.Took = time.Since(o.began)
			})
		}
		most := 0.0
		Eventually(func(ctx context.Context) float64 {
			most = max(most, series(ctx, &routers[0], routerMetrics)["pdpool_router_inflight"])
			return most
		}).WithContext(ctx).Should(BeNumerically("==", 256), "streams at once")
		clients.Wait()
		show("256 streams", outcomes)
		for _, o := range outcomes {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		bounded(&routers[0], "router", 64*mebibyte)
		unrestarted(ctx, &routers[0])
	})

	It("a manager keeps 50 pools within 128 MiB", func(ctx context.Context) {
		needMachine()
		needHelm()
		namespace := newNamespace(ctx)
		Expect(install(ctx, "--set", "resources.limits.memory=128Mi")).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(install(ctx)).To(Succeed())
			Expect(operatorReady(ctx)).To(Succeed())
		}, NodeTimeout(4*time.Minute))
		Expect(operatorReady(ctx)).To(Succeed())
		const pools = 50
		leaders := managers(ctx)
		s := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "TCP", anywhere: true}
		for i := range pools {
			Expect(k8s.Apply(ctx, namespace, s.manifest(fmt.Sprintf("pool-%02d", i)))).To(Succeed())
		}
		// 16 devices hold 8 pairs; of the others all objects are there and pods wait.
		Eventually(func(g Gomega, ctx context.Context) {
			all := &v1alpha1.PDPoolList{}
			g.Expect(k8s.List(ctx, all, client.InNamespace(namespace))).To(Succeed())
			g.Expect(all.Items).To(HaveLen(pools))
			ready := 0
			for _, p := range all.Items {
				g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation), p.Name)
				for _, c := range p.Status.Conditions {
					if c.Type == v1alpha1.ConditionReady && c.Status == "True" {
						ready++
					}
				}
			}
			g.Expect(ready).To(BeNumerically(">=", 4))
			pods := &corev1.PodList{}
			g.Expect(k8s.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
			g.Expect(len(pods.Items)).To(BeNumerically(">=", 150))
		}).WithContext(ctx).WithTimeout(4 * time.Minute).WithPolling(2 * time.Second).Should(Succeed())
		after := managers(ctx)
		Expect(uids(after)).To(Equal(uids(leaders)))
		for i, pod := range after {
			bounded(&pod, "manager", 128*mebibyte)
			Expect(pod.Status.ContainerStatuses[0].RestartCount).To(Equal(leaders[i].Status.ContainerStatuses[0].RestartCount), pod.Name)
		}
	})
})
