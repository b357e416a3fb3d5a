package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/test/cluster"
)

func intOrString(port int) intstr.IntOrString { return intstr.FromInt(port) }

const (
	promptTokens = 1000
	answerTokens = 12
)

func tp(n int) kvlayout.Layout { return kvlayout.Layout{TP: n} }

func dcp(n, degree, interleave int) kvlayout.Layout {
	return kvlayout.Layout{TP: n, DCP: degree, Interleave: interleave}
}

// serves asks a pool and an unsplit instance, and checks the bytes that moved
// against those that the layouts say.
func (p pool) serves(ctx context.Context, reference func(string, int) string, total int64) {
	GinkgoHelper()
	for seed := range 3 {
		prompt := words(seed, promptTokens)
		answer := p.ask(ctx, prompt, answerTokens)
		Expect(answer.Status).To(Equal(200), answer.Error)
		Expect(answer.Text).To(Equal(reference(prompt, answerTokens)))
		Expect(answer.Transfer).NotTo(BeEmpty())
		want := p.predicted(promptTokens)
		sent := p.transfer(ctx, v1alpha1.RolePrefill, answer.Transfer)
		got := p.transfer(ctx, v1alpha1.RoleDecode, answer.Transfer)
		Expect(cluster.Bytes(sent.Flows)).To(Equal(want), "what the movers copied")
		Expect(cluster.Bytes(got.Received)).To(Equal(want), "what the receivers got")
		var moved int64
		for _, n := range want {
			moved += n
		}
		if total > 0 {
			Expect(moved).To(Equal(total))
		}
	}
	p.quiet(ctx)
}

var _ = Describe("A pool that fits", func() {
	DescribeTable("serves the text of an unsplit instance, each token written where it belongs",
		func(ctx context.Context, s setup, total int64) {
			namespace := newNamespace(ctx)
			reference := unsplit(ctx, namespace, s.model)
			p := s.start(ctx, namespace, "pool")
			prefill, _ := p.pod(ctx, v1alpha1.RolePrefill)
			decode, _ := p.pod(ctx, v1alpha1.RoleDecode)
			seen, err := k8s.Pool(ctx, namespace, "pool")
			Expect(err).NotTo(HaveOccurred())
			Expect(string(seen.Status.Transfer.Backend)).To(Equal(s.backend))
			if s.backend == "TCP" {
				Expect(prefill.Spec.NodeName).NotTo(Equal(decode.Spec.NodeName), "tcp between two nodes")
			} else {
				Expect(prefill.Spec.NodeName).To(Equal(decode.Spec.NodeName), "shm between two pods of a node")
			}
			p.serves(ctx, reference, total)
		},
		Entry("tcp: DeepSeek-R1 TP4 -> TP4 DCP4 interleave 64", setup{model: deepSeekR1, prefill: tp(4), decode: dcp(4, 4, 64), backend: "TCP"}, int64(71_958_528)),
		Entry("shm: DeepSeek-R1 TP4 -> TP4", setup{model: deepSeekR1, prefill: tp(4), decode: tp(4), backend: "SharedMemory"}, int64(287_834_112)),
		Entry("tcp: MLA TP4 -> TP4 DCP4 interleave 1", setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 1), backend: "TCP"}, int64(0)),
		Entry("shm: MLA TP4 -> TP4 DCP4 interleave 1", setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 1), backend: "SharedMemory"}, int64(0)),
		Entry("tcp: MLA TP4 -> TP4 DCP4 interleave 16", setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 16), backend: "TCP"}, int64(0)),
		Entry("tcp: MLA TP8 -> TP4 DCP4 interleave 64", setup{model: smallMLA, prefill: tp(8), decode: dcp(4, 4, 64), backend: "TCP"}, int64(0)),
		Entry("tcp: GQA TP4 -> TP4", setup{model: smallGQA, prefill: tp(4), decode: tp(4), backend: "TCP"}, int64(0)),
		Entry("shm: GQA TP4 -> TP2, two writers per decode rank", setup{model: smallGQA, prefill: tp(4), decode: tp(2), backend: "SharedMemory"}, int64(0)),
		Entry("tcp: GQA TP4 -> TP2, two writers per decode rank", setup{model: smallGQA, prefill: tp(4), decode: tp(2), backend: "TCP"}, int64(0)),
	)
})

var _ = Describe("An injected fault", func() {
	DescribeTable("gives an error that names a row or a reason, never text",
		func(ctx context.Context, s setup, word string) {
			namespace := newNamespace(ctx)
			p := s.start(ctx, namespace, "pool")
			for seed := range 2 {
				answer := p.ask(ctx, words(seed, 300), 4)
				Expect(answer.Status).NotTo(Equal(200), "text: %s", answer.Text)
				Expect(answer.Error).To(ContainSubstring(word))
			}
		},
		Entry("copies off", setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 16), backend: "TCP", prefillArgs: []string{"--sim-fault=copies-off"}}, "row"),
		Entry("one byte flipped", setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 16), backend: "SharedMemory", prefillArgs: []string{"--sim-fault=flip:rank=1,layer=2,row=17"}}, "row"),
		Entry("interleave off by one", setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 16), backend: "TCP", prefillArgs: []string{"--sim-fault=interleave-off"}}, "row"),
		Entry("everything to rank 0", setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 16), backend: "TCP", prefillArgs: []string{"--sim-fault=all-to-rank-0"}}, "row"),
		Entry("done before the last writer", setup{
			model: smallGQA, prefill: tp(4), decode: tp(2), backend: "TCP",
			prefillArgs: []string{"--sim-fault=delay-writer:rank=1,ms=500"}, decodeArgs: []string{"--sim-fault=first-writer-ends"},
		}, "row"),
	)

	It("of two writers, one killed and one delayed, ends when the second has ended", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		p := setup{
			model: smallGQA, prefill: tp(4), decode: tp(2), backend: "TCP",
			// The first layer takes a while, so that the agents have shaken hands before the kill.
			prefillArgs: []string{"--sim-prefill-ms-per-layer=300", "--sim-fault=kill-writer:rank=0,layer=3", "--sim-fault=delay-writer:rank=1,ms=2000"},
		}.start(ctx, namespace, "pool")
		answer := p.ask(ctx, words(1, 300), 4)
		Expect(answer.Status).NotTo(Equal(200), "text: %s", answer.Text)
		Expect(answer.Error).To(ContainSubstring("engine-gone"))
		got := p.transfer(ctx, v1alpha1.RoleDecode, answer.Transfer)
		Expect(got.State).To(Equal("failed"))
		ended := map[int]time.Time{}
		for _, f := range got.Flows {
			if f.ReaderTP == 0 {
				ended[f.WriterTP] = f.Ended
			}
		}
		Expect(ended).To(HaveLen(2))
		Expect(ended[1].Sub(ended[0])).To(BeNumerically(">", time.Second), "the delayed writer ends later")
		Expect(got.Ended).NotTo(BeTemporally("<", ended[1]), "no terminal report before the second writer has ended")
	})
})
