package transferagent

import (
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

func TestFaultsOfASimulatorAreInjected(t *testing.T) {
	pm, dm := memMovers(t)
	pp, dp := startPod(t, podConfig(t, kvlayout.Prefill, latent, plain), pm), startPod(t, podConfig(t, kvlayout.Decode, latent, dealt), dm)
	p := &pair{prefill: pp.connect("copies-off"), decode: dp.connect()}
	r := p.prompt("tx-off", 1, 40)
	p.start(t, r)
	p.fill(t, r)
	p.finish(t, r)
	for _, w := range p.decode.workers {
		for i, b := range w.memory {
			if b != 0 {
				t.Fatalf("byte %d of rank %d was written with copies off", i, w.tp)
			}
		}
	}
	// The next engine of the pod is sound again.
	for _, w := range p.prefill.workers {
		_ = w.client.Close()
	}
	_ = p.prefill.sched.Close()
	pp.await("/readyz", 503)
	p.prefill = pp.connect()
	p.serves(t, "tx-on", 2)
}

func TestFaultsOfOtherEnginesAreRefused(t *testing.T) {
	cfg := podConfig(t, kvlayout.Prefill, latent, plain)
	cfg.Engine = kvlayout.VLLM
	pm, _ := memMovers(t)
	pod := startPod(t, cfg, pm)
	h := pod.hello(kvproto.Scheduler, 0)
	h.Faults = []string{"copies-off"}
	if _, err := pod.dial(h); err == nil || !strings.Contains(err.Error(), "only a simulator") {
		t.Fatalf("the agent says %v", err)
	}
}
