package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/enginesim"
	"github.com/pdpool/pdpool/test/cluster"
)

// answer is what every instance of the model answers, as the simulator knows without
// a server.
func (m model) answer(prompt string, tokens int) string {
	GinkgoHelper()
	g := m.geometry
	shape, err := json.Marshal(map[string]any{
		"model": m.name, "kind": g.Kind, "layers": g.Layers,
		"attentionHeads": g.AttentionHeads, "kvHeads": g.KVHeads, "headValues": g.HeadValues,
	})
	Expect(err).NotTo(HaveOccurred())
	config, options, err := enginesim.ParseAnswer([]string{m.name, "--sim-geometry=" + string(shape), "--max-tokens=" + itoa(tokens)})
	Expect(err).NotTo(HaveOccurred())
	text, err := enginesim.AnswerText(config, options, prompt)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// outcome is how one request of a load ended.
type outcome struct {
	cluster.Completion
	want  string
	err   error // of the connection
	began time.Time
}

func (o outcome) good() bool {
	return o.err == nil && o.Status == http.StatusOK && o.Error == "" && o.Text == o.want
}

// wrong is a text that nobody should have got.
func (o outcome) wrong() bool {
	return o.err == nil && o.Status == http.StatusOK && o.Error == "" && o.Text != o.want
}

func (o outcome) String() string {
	switch {
	case o.err != nil:
		return fmt.Sprintf("after %s: %v", o.Took.Round(time.Millisecond), o.err)
	case o.Error != "":
		return fmt.Sprintf("after %s: status %d, transfer %s: %s", o.Took.Round(time.Millisecond), o.Status, o.Transfer, o.Error)
	}
	return fmt.Sprintf("after %s: status %d, text %q instead of %q", o.Took.Round(time.Millisecond), o.Status, o.Text, o.want)
}

// load is clients that ask again and again.
type load struct {
	stop     context.CancelFunc
	clients  sync.WaitGroup
	mu       sync.Mutex
	outcomes []outcome
}

// loadShape is what the clients of a load do.
type loadShape struct {
	clients, tokens, prompt int           // tokens of the answer and of the prompt
	patience                time.Duration // a client's own limit for a request
	total                   int           // requests of all clients together; 0 until stopped
}

// load starts clients that send prompts past the API server to the pool's Service,
// every second one as a stream. They end with the spec at the latest.
func (p pool) load(ctx context.Context, shape loadShape) *load {
	GinkgoHelper()
	needMachine()
	target := p.address(ctx)
	ctx, cancel := context.WithCancel(ctx)
	l := &load{stop: cancel}
	DeferCleanup(func() { l.end() })
	prompts, wants := make([]string, 16), make([]string, 16)
	for i := range prompts {
		prompts[i] = words(1000+i, shape.prompt)
		wants[i] = p.model.answer(prompts[i], shape.tokens)
	}
	left := make(chan struct{}, max(1, shape.total))
	for range shape.total {
		left <- struct{}{}
	}
	for client := range shape.clients {
		l.clients.Go(func() {
			for i := client; ctx.Err() == nil; i++ {
				if shape.total > 0 {
					select {
					case <-left:
					default:
						return
					}
				}
				l.one(ctx, p, target, shape, prompts[i%16], wants[i%16], i%2 == 1)
			}
		})
	}
	return l
}

func (l *load) one(ctx context.Context, p pool, target string, shape loadShape, prompt, want string, stream bool) {
	// A request that was sent is always waited for: the end of a load must not look
	// like a client that went away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shape.patience)
	defer cancel()
	var each func(string)
	if stream {
		each = func(string) {}
	}
	o := outcome{want: want, began: time.Now()}
	o.Completion, o.err = k8s.Complete(ctx, p.namespace, target, p.model.name, prompt, shape.tokens, each)
	o.Took = time.Since(o.began)
	l.mu.Lock()
	l.outcomes = append(l.outcomes, o)
	l.mu.Unlock()
	if !o.good() {
		// A pool that can't serve answers at once: don't let the refusals be the load.
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// end stops the clients, waits for what they sent, and returns how everything ended.
func (l *load) end() []outcome {
	l.stop()
	l.clients.Wait()
	return l.outcomes
}

// wait waits until all requests of a load with a total have ended.
func (l *load) wait() []outcome {
	l.clients.Wait()
	return l.outcomes
}

// count is how many requests have ended so far, and how many of them well.
func (l *load) count() (all, good int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outcomes {
		if o.good() {
			good++
		}
	}
	return len(l.outcomes), good
}

// served waits until n more requests have ended well.
func (l *load) served(ctx context.Context, n int) {
	GinkgoHelper()
	_, before := l.count()
	Eventually(func() int { _, good := l.count(); return good }).WithContext(ctx).Should(BeNumerically(">=", before+n))
}

// reasoned checks that no text was wrong and that each request that failed told a
// reason, or lost its connection where that may be, and returns what failed.
func reasoned(outcomes []outcome, within time.Duration, mayBreak bool) []outcome {
	GinkgoHelper()
	var failed []outcome
	for _, o := range outcomes {
		Expect(o.wrong()).To(BeFalse(), o.String())
		Expect(o.Took).To(BeNumerically("<", within), o.String())
		if o.good() {
			continue
		}
		failed = append(failed, o)
		if o.err == nil {
			Expect(o.Error).NotTo(BeEmpty(), o.String())
			continue
		}
		Expect(mayBreak).To(BeTrue(), o.String())
		var timeout net.Error
		Expect(errors.As(o.err, &timeout) && timeout.Timeout()).To(BeFalse(), o.String())
	}
	return failed
}

// median of how long the good ones took.
func median(outcomes []outcome) time.Duration {
	var took []time.Duration
	for _, o := range outcomes {
		if o.good() {
			took = append(took, o.Took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

var digits = regexp.MustCompile(`[0-9]+`)

// show prints how outcomes were spread: texts that differ in numbers only count as one.
func show(name string, outcomes []outcome) {
	counts := map[string]int{}
	for _, o := range outcomes {
		text := "good"
		if !o.good() {
			_, text, _ = strings.Cut(o.String(), ": ")
			text = digits.ReplaceAllString(strings.Replace(text, ", transfer "+o.Transfer, "", 1), "#")
		}
		counts[text]++
	}
	for text, n := range counts {
		AddReportEntry(name, fmt.Sprintf("%5d  %.300s", n, text), ReportEntryVisibilityAlways)
	}
	AddReportEntry(name, fmt.Sprintf("%d requests, median %s", len(outcomes), median(outcomes)), ReportEntryVisibilityAlways)
}

// address is the pool's Service as a client in the cluster reaches it.
func (p pool) address(ctx context.Context) string {
	GinkgoHelper()
	service := &corev1.Service{}
	Expect(k8s.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: p.name + "-router"}, service)).To(Succeed())
	for _, port := range service.Spec.Ports {
		if port.Name == "http" {
			return fmt.Sprintf("http://%s:%d", service.Spec.ClusterIP, port.Port)
		}
	}
	Fail("the router's Service has no port http")
	return ""
}

// routers are the pool's router pods that are not being deleted.
func (p pool) routers(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(k8s.List(ctx, list, client.InNamespace(p.namespace), client.MatchingLabels{
		v1alpha1.LabelPool: p.name, v1alpha1.LabelRole: v1alpha1.RoleRouter,
	})).To(Succeed())
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// right asks until the answer is right: what must be so soon after a fault is over.
func (p pool) right(ctx context.Context, seed int) {
	GinkgoHelper()
	prompt := words(seed, 300)
	want := p.model.answer(prompt, 4)
	target := p.address(ctx)
	Eventually(func(g Gomega, ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		answer, err := k8s.Complete(ctx, p.namespace, target, p.model.name, prompt, 4, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.Status).To(Equal(http.StatusOK), answer.Error)
		g.Expect(answer.Text).To(Equal(want))
	}).WithContext(ctx).Should(Succeed())
}

// needMachine skips a spec on a cluster whose nodes can't be entered.
func needMachine() {
	GinkgoHelper()
	if machine == nil {
		Skip("needs a development cluster, whose nodes can be entered")
	}
}
