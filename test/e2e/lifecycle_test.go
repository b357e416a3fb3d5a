package e2e

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/test/cluster"
)

var _ = Describe("A pool that cannot work", func() {
	It("is refused with rule, field and change, all problems at once, and changes nothing", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		s := setup{model: deepSeekR1, prefill: dcp(4, 2, 48), decode: dcp(4, 4, 48), backend: "TCP"}
		err := k8s.Apply(ctx, namespace, s.manifest("refused"))
		Expect(err).To(HaveOccurred())
		for _, word := range []string{"dcp-mix", "prefill.layout.dcp", "interleave-block", "decode.layout.interleave", "48", "64"} {
			Expect(err.Error()).To(ContainSubstring(word))
		}
		pools := &v1alpha1.PDPoolList{}
		Expect(k8s.List(ctx, pools, client.InNamespace(namespace))).To(Succeed())
		Expect(pools.Items).To(BeEmpty())
		pods := &corev1.PodList{}
		Expect(k8s.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
		Expect(pods.Items).To(BeEmpty())
	})
})

var _ = Describe("A running pool", func() {
	It("answers 400 to a prompt that no instance can hold", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: tp(2), backend: "SharedMemory"}.start(ctx, namespace, "pool")
		answer := p.ask(ctx, words(1, 40_000), 4)
		Expect(answer.Status).To(Equal(http.StatusBadRequest))
		Expect(answer.Error).To(ContainSubstring("token"))
	})

	It("fails a request within 5 s when prefill is killed in mid transfer, heals, and is right again", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		reference := unsplit(ctx, namespace, smallMLA)
		p := setup{
			model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 16), backend: "TCP",
			prefillArgs: []string{"--sim-prefill-ms-per-layer=1000"},
		}.start(ctx, namespace, "pool")
		old, ports := p.pod(ctx, v1alpha1.RolePrefill)

		type result struct {
			answer cluster.Completion
			ended  time.Time
		}
		answers := make(chan result, 1)
		go func() {
			defer GinkgoRecover()
			answer := p.ask(ctx, words(1, 500), 4)
			answers <- result{answer, time.Now()}
		}()
		decode, decodePorts := p.pod(ctx, v1alpha1.RoleDecode)
		Eventually(func(ctx context.Context) int64 { return p.live(ctx, &decode, decodePorts.HTTP) }).
			WithContext(ctx).WithTimeout(soon).Should(BeNumerically(">", 0))
		killed := time.Now()
		response, err := k8s.Request(ctx, namespace, "pods/"+old.Name+":"+itoa(ports.HTTP), http.MethodPost, "/sim/kill", nil)
		if err == nil {
			_ = response.Body.Close()
		}
		var r result
		Eventually(answers).WithTimeout(soon).Should(Receive(&r))
		Expect(r.answer.Status).NotTo(Equal(200))
		Expect(r.answer.Error).NotTo(BeEmpty())
		Expect(r.ended.Sub(killed)).To(BeNumerically("<", 5*time.Second))

		Eventually(func(g Gomega, ctx context.Context) {
			pods, err := k8s.Pods(ctx, namespace, "pool", v1alpha1.RolePrefill)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods).To(HaveLen(1))
			g.Expect(pods[0].UID).NotTo(Equal(old.UID))
			g.Expect(pods[0].Labels[v1alpha1.LabelAttempt]).NotTo(Equal(old.Labels[v1alpha1.LabelAttempt]))
		}).WithContext(ctx).Should(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
		prompt := words(2, 500)
		Eventually(func(ctx context.Context) string { return p.ask(ctx, prompt, 4).Text }).
			WithContext(ctx).WithTimeout(soon).Should(Equal(reference(prompt, 4)))
		p.quiet(ctx)
	})

	It("changes its layout by replacing the replicas, and never pairs across pairing keys", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		reference := unsplit(ctx, namespace, smallMLA)
		s := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP"}
		p := s.start(ctx, namespace, "pool")
		oldPrefill, _ := p.pod(ctx, v1alpha1.RolePrefill)
		oldDecode, _ := p.pod(ctx, v1alpha1.RoleDecode)

		loop := p.askForEver(ctx, reference)
		s.decode, s.blockSize = tp(2), 32
		Expect(k8s.Apply(ctx, namespace, s.manifest("pool"))).To(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
		newPrefill, _ := p.pod(ctx, v1alpha1.RolePrefill)
		newDecode, _ := p.pod(ctx, v1alpha1.RoleDecode)
		Expect(newPrefill.Labels[v1alpha1.LabelPairing]).NotTo(Equal(oldPrefill.Labels[v1alpha1.LabelPairing]))
		Expect(newPrefill.Labels[v1alpha1.LabelPairing]).To(Equal(newDecode.Labels[v1alpha1.LabelPairing]))
		Expect(k8s.WaitGone(ctx, &oldPrefill, goneWithin)).To(Succeed())
		Expect(k8s.WaitGone(ctx, &oldDecode, goneWithin)).To(Succeed())
		good, wrong := loop()
		Expect(wrong).To(BeEmpty())
		Expect(good).To(BeNumerically(">", 0), "requests served during the change")
		p.setup = s
		p.serves(ctx, reference, 0)
	})

	It("streams, chats, and answers alike through two routers", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		reference := unsplit(ctx, namespace, smallMLA)
		p := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "SharedMemory", routers: 2}.start(ctx, namespace, "pool")
		routers := &corev1.PodList{}
		Expect(k8s.List(ctx, routers, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelRole: v1alpha1.RoleRouter})).To(Succeed())
		Expect(routers.Items).To(HaveLen(2))
		prompt := words(7, 200)
		want := reference(prompt, 8)
		for _, router := range routers.Items {
			target := "pods/" + router.Name + ":8000"
			var streamed strings.Builder
			answer, err := k8s.Complete(ctx, namespace, target, smallMLA.name, prompt, 8, func(piece string) { streamed.WriteString(piece) })
			Expect(err).NotTo(HaveOccurred())
			Expect(answer.Status).To(Equal(200), answer.Error)
			Expect(answer.Error).To(BeEmpty(), "the stream ends with [DONE]")
			Expect(streamed.String()).To(Equal(want))
			Expect(answer.Chunks).To(BeNumerically(">=", 8))
			chat, err := k8s.Chat(ctx, namespace, target, smallMLA.name, prompt, 8)
			Expect(err).NotTo(HaveOccurred())
			Expect(chat.Status).To(Equal(200), chat.Error)
			Expect(chat.Text).NotTo(BeEmpty())
			Expect(chat.Transfer).NotTo(BeEmpty())
		}
		p.quiet(ctx)
	})

	It("replaces a replica of several pods whole when one of them fails", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		reference := unsplit(ctx, namespace, smallMLA)
		two := kvlayout.Layout{TP: 2, DP: 2, DPLocal: 1}
		p := setup{model: smallMLA, prefill: two, decode: two, backend: "TCP"}.start(ctx, namespace, "pool")
		old, err := k8s.Pods(ctx, namespace, "pool", v1alpha1.RolePrefill)
		Expect(err).NotTo(HaveOccurred())
		Expect(old).To(HaveLen(2))
		for seed := range 6 { // over all pairs of ranks
			prompt := words(seed, 200)
			answer := p.ask(ctx, prompt, 4)
			Expect(answer.Status).To(Equal(200), answer.Error)
			Expect(answer.Text).To(Equal(reference(prompt, 4)))
		}
		ports, err := cluster.Ports(&old[1])
		Expect(err).NotTo(HaveOccurred())
		if response, err := k8s.Request(ctx, namespace, "pods/"+old[1].Name+":"+itoa(ports.HTTP), http.MethodPost, "/sim/kill", nil); err == nil {
			_ = response.Body.Close()
		}
		for i := range old {
			Expect(k8s.WaitGone(ctx, &old[i], goneWithin)).To(Succeed())
		}
		Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
		again, err := k8s.Pods(ctx, namespace, "pool", v1alpha1.RolePrefill)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(HaveLen(2))
		for _, pod := range again {
			Expect(pod.Labels[v1alpha1.LabelAttempt]).To(Equal("1"))
		}
		prompt := words(9, 200)
		Eventually(func(ctx context.Context) string { return p.ask(ctx, prompt, 4).Text }).
			WithContext(ctx).WithTimeout(soon).Should(Equal(reference(prompt, 4)))
	})

	It("goes with everything that it made when it is deleted", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "SharedMemory"}.start(ctx, namespace, "pool")
		Expect(k8s.Delete(ctx, &v1alpha1.PDPool{ObjectMeta: meta(namespace, p.name)})).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			pods := &corev1.PodList{}
			g.Expect(k8s.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty())
			services := &corev1.ServiceList{}
			g.Expect(k8s.List(ctx, services, client.InNamespace(namespace))).To(Succeed())
			g.Expect(services.Items).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	})
})

// askForEver sends short prompts until the returned function is called, which tells
// how many were served and what was wrong: other text than the reference's, or an
// agent's refusal to pair.
func (p pool) askForEver(ctx context.Context, reference func(string, int) string) func() (good int, wrong []string) {
	type tally struct {
		good  int
		wrong []string
	}
	stop, stopped := make(chan struct{}), make(chan tally, 1)
	prompts := map[string]string{}
	for seed := range 8 {
		prompt := words(100+seed, 80)
		prompts[prompt] = reference(prompt, 3)
	}
	go func() {
		var t tally
		defer func() { stopped <- t }()
		for {
			for prompt, want := range prompts {
				select {
				case <-stop:
					return
				default:
				}
				answer, err := k8s.Complete(ctx, p.namespace, "services/"+p.name+"-router:http", p.model.name, prompt, 3, nil)
				switch {
				case err != nil: // a router pod has gone under the API server's proxy
				case answer.Status == http.StatusOK && answer.Text == want:
					t.good++
				case answer.Status == http.StatusOK:
					t.wrong = append(t.wrong, "wrong text: "+answer.Text)
				case strings.Contains(answer.Error, "pairing-differs"):
					t.wrong = append(t.wrong, answer.Error)
				}
			}
		}
	}()
	return func() (int, []string) {
		close(stop)
		t := <-stopped
		return t.good, t.wrong
	}
}
