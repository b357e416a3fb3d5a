package e2e

import (
	"context"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/test/cluster"
	"github.com/pdpool/pdpool/test/noise"
)

// ports are all ports of the pool's agents and routers.
func (p pool) ports(ctx context.Context) []noise.Target {
	GinkgoHelper()
	var out []noise.Target
	add := func(pod *corev1.Pod, name string, port int, zmtp bool) {
		out = append(out, noise.Target{
			Name:    pod.Labels[v1alpha1.LabelRole] + " " + name,
			Address: net.JoinHostPort(pod.Status.PodIP, itoa(port)), ZMTP: zmtp,
		})
	}
	for _, role := range []string{v1alpha1.RolePrefill, v1alpha1.RoleDecode} {
		pod, ports := p.pod(ctx, role)
		add(&pod, "agent", ports.Agent, false)
		add(&pod, "handshake", ports.Handshake, true)
		add(&pod, "notify", ports.Notify, true)
		add(&pod, "data", ports.Data, false)
	}
	for _, pod := range p.routers(ctx) {
		add(&pod, "http", 8000, false)
		add(&pod, "metrics", routerMetrics, false)
	}
	return out
}

var _ = Describe("Strangers", func() {
	It("who flood every port of agents and routers for a minute fail no good request and slow none by more than twice", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{
			model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", memory: "64Mi", routerMemory: "64Mi",
			prefillArgs: []string{"--sim-prefill-ms-per-layer=10"},
		}.start(ctx, namespace, "pool")
		shape := loadShape{clients: 2, prompt: 200, tokens: 4, patience: 30 * time.Second}
		quiet := p.load(ctx, shape)
		quiet.served(ctx, 200)
		before := quiet.end()

		targets := p.ports(ctx)
		minute, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		l := p.load(ctx, shape)
		tallies := noise.Make(minute, machine.Dial, targets, noise.Options{Frames: 10_000, Scans: 2, Seed: 1})
		during := l.end()
		for _, target := range targets {
			AddReportEntry("noise at "+target.Name, tallies[target.Name].String(), ReportEntryVisibilityAlways)
			Expect(tallies[target.Name].Frames.Load()).To(BeNumerically(">", 60_000), target.Name)
		}
		show("before the noise", before)
		show("in the noise", during)
		for _, o := range append(before, during...) {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		Expect(median(during)).To(BeNumerically("<=", 2*median(before)))
		for _, role := range []string{v1alpha1.RolePrefill, v1alpha1.RoleDecode} {
			pod, _ := p.pod(ctx, role)
			bounded(&pod, "transfer-agent", 64*mebibyte)
			unrestarted(ctx, &pod)
		}
		for _, pod := range p.routers(ctx) {
			bounded(&pod, "router", 64*mebibyte)
			unrestarted(ctx, &pod)
		}
		p.right(ctx, 5)
		p.quiet(ctx)
	})

	It("who name blocks of a waiting prompt without the pool's secret get no byte", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: tp(2), backend: "TCP", timeout: 5}.start(ctx, namespace, "pool")
		prefill, decode := p.instance(ctx, v1alpha1.RolePrefill), p.instance(ctx, v1alpha1.RoleDecode)
		ports, err := cluster.Ports(&prefill.pod)
		Expect(err).NotTo(HaveOccurred())
		// The prompt waits for a decode that never comes; the stranger knows its id.
		const id = "tx-overheard"
		held := prefill.send(ctx, decode, v1alpha1.RolePrefill, id, words(1, 200), 1, 0, 0)
		Expect(held.err).NotTo(HaveOccurred())
		Expect(held.status).To(Equal(200), held.text)
		dropped := series(ctx, &prefill.pod, ports.Agent)["pdpool_agent_dropped_messages_total"]
		other, err := cluster.Ports(&decode.pod)
		Expect(err).NotTo(HaveOccurred())
		message := (&moriio.RemoteBlocks{
			RequestID: "overheard", Transfer: id, Blocks: []int32{0, 1, 2, 3},
			PDPool: &moriio.Allocation{
				Host: decode.pod.Status.PodIP, Handshake: other.Handshake, Notify: other.Notify, Tokens: 200,
			},
		}).Append(nil)
		address := net.JoinHostPort(prefill.pod.Status.PodIP, itoa(ports.Notify))
		Expect(noise.Say(ctx, machine.Dial, address, message)).To(Succeed())
		Eventually(func(ctx context.Context) float64 {
			return series(ctx, &prefill.pod, ports.Agent)["pdpool_agent_dropped_messages_total"]
		}).WithContext(ctx).WithTimeout(soon).Should(BeNumerically(">", dropped), "it was dropped unread")
		Eventually(func(g Gomega, ctx context.Context) {
			t, err := k8s.Transfer(ctx, &prefill.pod, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(t.State).To(Equal("failed"))
			g.Expect(t.Rule).To(Equal("deadline-defer"), "nobody named blocks")
			for _, f := range t.Flows {
				g.Expect(f.Bytes).To(BeZero())
			}
		}).WithContext(ctx).WithTimeout(soon).Should(Succeed())
		_, err = k8s.Transfer(ctx, &decode.pod, id)
		Expect(err).To(MatchError(ContainSubstring("404")), "decode never heard of it")
		Expect(series(ctx, &decode.pod, other.Agent)["pdpool_agent_bytes_total"]).To(BeZero())
		p.right(ctx, 2)
		p.quiet(ctx)
	})
})
