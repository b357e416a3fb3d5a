package e2e

import (
	"context"
	"net"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// routerRegistrations is the router's port for MoRIIO's registrations.
const routerRegistrations = 36367

var _ = Describe("The routers that the operator makes", func() {
	It("know their memory, hear no engine where agents move the bytes, and fail no request when they are replaced", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP"}.start(ctx, namespace, "pool")
		old := p.routers(ctx)
		Expect(old).To(HaveLen(1))
		bounded(&old[0], "router", 512*mebibyte)
		_, err := machine.Dial(ctx, "tcp", net.JoinHostPort(old[0].Status.PodIP, itoa(routerRegistrations)))
		Expect(err).To(MatchError(syscall.ECONNREFUSED))

		l := p.load(ctx, loadShape{clients: 4, prompt: 200, tokens: 8, patience: 30 * time.Second})
		l.served(ctx, 20)
		p.routerMemory = "64Mi"
		Expect(k8s.Apply(ctx, namespace, p.manifest(p.name))).To(Succeed())
		Expect(k8s.WaitGone(ctx, &old[0], goneWithin)).To(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, p.name, readyWithin)).To(Succeed())
		l.served(ctx, 20)
		outcomes := l.end()
		show("routers replaced", outcomes)
		for _, o := range outcomes {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		now := p.routers(ctx)
		Expect(now).To(HaveLen(1))
		Expect(now[0].Labels[v1alpha1.LabelRevision]).NotTo(Equal(old[0].Labels[v1alpha1.LabelRevision]))
		bounded(&now[0], "router", 64*mebibyte)
		p.quiet(ctx)
	})
})
