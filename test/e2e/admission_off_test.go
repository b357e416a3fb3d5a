package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/test/cluster"
)

// unwatched keeps the webhook out of a namespace until the spec has ended.
func unwatched(ctx context.Context, namespace string) {
	GinkgoHelper()
	set := func(ctx context.Context, selector *metav1.LabelSelector) error {
		return cluster.Poll(ctx, soon, func(ctx context.Context) error {
			c := &admissionv1.ValidatingWebhookConfiguration{}
			if err := k8s.Get(ctx, client.ObjectKey{Name: "pdpool"}, c); err != nil {
				return err
			}
			c.Webhooks[0].NamespaceSelector = selector
			return k8s.Update(ctx, c)
		})
	}
	Expect(set(ctx, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{namespace},
	}}})).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(set(ctx, &metav1.LabelSelector{})).To(Succeed()) })
}

// instance is an engine pod that legs are sent to by hand.
type instance struct {
	pod    corev1.Pod
	layout kvlayout.Layout
}

func (p pool) instance(ctx context.Context, role string) instance {
	GinkgoHelper()
	pod, _ := p.pod(ctx, role)
	if role == v1alpha1.RolePrefill {
		return instance{pod, p.prefill.Defaulted()}
	}
	return instance{pod, p.decode.Defaulted()}
}

// leg is how one leg of a request ended.
type leg struct {
	status int
	text   string
	took   time.Duration
	err    error
}

// send sends one leg to an engine, past every router.
func (i instance) send(ctx context.Context, peer instance, role, transfer, prompt string, tokens, rank, peerRank int) leg {
	ports, err := cluster.Ports(&i.pod)
	if err != nil {
		return leg{err: err}
	}
	other, err := cluster.Ports(&peer.pod)
	if err != nil {
		return leg{err: err}
	}
	body, err := json.Marshal(map[string]any{
		"model": smallMLA.name, "prompt": prompt, "max_tokens": tokens,
		"kv_transfer_params": map[string]any{
			"do_remote_decode": role == v1alpha1.RolePrefill, "do_remote_prefill": role == v1alpha1.RoleDecode,
			"transfer_id": transfer, "remote_engine_id": nil, "remote_block_ids": nil,
			"remote_host": peer.pod.Status.PodIP, "remote_handshake_port": other.Handshake, "remote_notify_port": other.Notify,
			"remote_tp_size": peer.layout.TP, "remote_dp_size": peer.layout.DP, "remote_dp_rank": peerRank,
		},
	})
	if err != nil {
		return leg{err: err}
	}
	url := fmt.Sprintf("http://%s:%d/v1/completions", i.pod.Status.PodIP, ports.HTTP)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return leg{err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Data-Parallel-Rank", fmt.Sprint(rank))
	began := time.Now()
	response, err := machine.HTTP().Do(request)
	if err != nil {
		return leg{err: err, took: time.Since(began)}
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return leg{status: response.StatusCode, text: string(text), took: time.Since(began), err: err}
}

// both sends the legs of a request to a data parallel rank of decode.
func both(ctx context.Context, prefill, decode instance, transfer, prompt string, tokens, rank int) (p, d leg) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	var legs sync.WaitGroup
	legs.Go(func() { p = prefill.send(ctx, decode, v1alpha1.RolePrefill, transfer, prompt, 1, 0, rank) })
	legs.Go(func() { d = decode.send(ctx, prefill, v1alpha1.RoleDecode, transfer, prompt, tokens, rank, 0) })
	legs.Wait()
	return p, d
}

var _ = Describe("With admission off", func() {
	It("a pool that breaks a rule runs and serves nothing: status, router and agents all say why, and its engines stay sound", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		unwatched(ctx, namespace)
		decode := dcp(2, 2, 32)
		decode.DP, decode.DPLocal = 2, 2
		s := setup{model: smallMLA, prefill: dcp(2, 2, 16), decode: decode, backend: "TCP", anywhere: true}
		Eventually(func(ctx context.Context) error { return k8s.Apply(ctx, namespace, s.manifest("broken")) }).
			WithContext(ctx).WithTimeout(soon).Should(Succeed(), "the API server forgets the webhook")
		broken := pool{setup: s, namespace: namespace, name: "broken"}
		Eventually(func(g Gomega, ctx context.Context) {
			pods := broken.everything(ctx)
			g.Expect(pods).To(HaveLen(3))
			for _, pod := range pods {
				g.Expect(isReady(&pod)).To(BeTrue(), pod.Name)
			}
		}).WithContext(ctx).Should(Succeed())
		seen, err := k8s.Pool(ctx, namespace, "broken")
		Expect(err).NotTo(HaveOccurred())
		sentence := ""
		for _, c := range seen.Status.Conditions {
			switch c.Type {
			case v1alpha1.ConditionCompatible:
				Expect(string(c.Status)).To(Equal("False"))
				Expect(c.Reason).To(Equal("DcpInterleave"))
				sentence = c.Message
			case v1alpha1.ConditionReady, v1alpha1.ConditionAvailable:
				Expect(string(c.Status)).To(Equal("False"), c.Type)
			}
		}
		Expect(sentence).NotTo(BeEmpty())
		AddReportEntry("Compatible", sentence, ReportEntryVisibilityAlways)

		target := broken.address(ctx)
		answer, err := k8s.Complete(ctx, namespace, target, smallMLA.name, words(1, 100), 4, nil)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("router", fmt.Sprintf("%d: %s", answer.Status, answer.Error), ReportEntryVisibilityAlways)
		Expect(answer.Status).To(Equal(http.StatusServiceUnavailable))
		Expect(answer.Error).To(ContainSubstring("interleave 16"))
		Expect(answer.Error).To(ContainSubstring("interleave 32"))

		p, d := broken.instance(ctx, v1alpha1.RolePrefill), broken.instance(ctx, v1alpha1.RoleDecode)
		for rank := range 2 {
			id := fmt.Sprintf("tx-by-hand-%d", rank)
			began := time.Now()
			_, refused := both(ctx, p, d, id, words(rank, 100), 4, rank)
			Expect(refused.err).NotTo(HaveOccurred())
			Expect(refused.took).To(BeNumerically("<", time.Second), "decode rank %d", rank)
			Expect(refused.status).NotTo(Equal(http.StatusOK), refused.text)
			Expect(refused.text).To(ContainSubstring("dcp-interleave"))
			for _, side := range []instance{p, d} {
				Eventually(func(g Gomega, ctx context.Context) {
					t, err := k8s.Transfer(ctx, &side.pod, id)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(t.State).To(Equal("failed"))
					g.Expect(t.Ended.Sub(began)).To(BeNumerically("<", time.Second))
				}).WithContext(ctx).WithTimeout(soon).Should(Succeed())
			}
		}
		broken.quiet(ctx)

		// A sound pool beside it, told the same secret, so that each of the two engines
		// has somebody that it may pair with.
		key := &corev1.Secret{}
		Expect(k8s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "broken-key"}, key)).To(Succeed())
		Expect(k8s.Create(ctx, &corev1.Secret{ObjectMeta: meta(namespace, "sound-key"), Data: key.Data})).To(Succeed())
		sound := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", anywhere: true}.start(ctx, namespace, "sound")
		for i, pair := range [][2]instance{
			{p, sound.instance(ctx, v1alpha1.RoleDecode)},
			{sound.instance(ctx, v1alpha1.RolePrefill), d},
		} {
			prompt := words(10+i, 200)
			_, served := both(ctx, pair[0], pair[1], fmt.Sprintf("tx-admitted-%d", i), prompt, 4, 0)
			Expect(served.err).NotTo(HaveOccurred())
			Expect(served.status).To(Equal(http.StatusOK), served.text)
			var text struct{ Choices []struct{ Text string } }
			Expect(json.Unmarshal([]byte(served.text), &text)).To(Succeed())
			Expect(text.Choices).To(HaveLen(1))
			Expect(text.Choices[0].Text).To(Equal(smallMLA.answer(prompt, 4)))
		}
		broken.quiet(ctx)
		sound.quiet(ctx)
	})
})

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
