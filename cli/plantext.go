package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// planText is the plan for people.
func (o Options) planText(plan Plan) error {
	p := o.page()
	p.verdict(plan.Verdict)
	engine := strings.TrimSpace(plan.Engine + " " + plan.Version)
	p.printf("\n  %s %s\n", p.paint(dim, "engine  "), engine)
	if plan.Caches != "" {
		p.printf("  %s %s: %s\n", p.paint(dim, "model   "), plan.Model, plan.Caches)
	} else {
		p.printf("  %s %s, of unknown KV geometry\n", p.paint(dim, "model   "), plan.Model)
	}
	p.printf("  %s %s by %s over %s: %s\n\n", p.paint(dim, "transfer"), plan.Mode, plan.Mover, plan.Backend, plan.Why)
	p.roles(plan)
	p.flows(plan.Transfer)
	p.pods("prefill", plan, plan.Prefill.Pods)
	p.pods("decode", plan, plan.Decode.Pods)
	return p.err
}

func (p *page) roles(plan Plan) {
	rows := [][]string{{"", "prefill", "decode"}}
	add := func(name string, of func(RolePlan) string) {
		rows = append(rows, []string{name, of(plan.Prefill), of(plan.Decode)})
	}
	add("layout", func(r RolePlan) string { return layoutText(r.Layout) })
	add("replicas", func(r RolePlan) string {
		return fmt.Sprintf("%d of %s of %s", r.Replicas, count(r.PodsPerReplica, "pod"), count(r.GPUsPerPod, "GPU"))
	})
	add("GPUs in all", func(r RolePlan) string { return grouped(r.GPUs) })
	add("block", func(r RolePlan) string {
		if r.Capacity != nil && r.Capacity.BlockTokens != r.BlockSize {
			return fmt.Sprintf("%s tokens, raised from %s", grouped(r.Capacity.BlockTokens), grouped(r.BlockSize))
		}
		return grouped(r.BlockSize) + " tokens"
	})
	add("KV cache type", func(r RolePlan) string { return string(r.KVType) })
	if plan.Prefill.Capacity != nil && plan.Decode.Capacity != nil {
		add("a token on a rank", func(r RolePlan) string { return grouped(r.Capacity.BytesPerToken) + " bytes" })
		add("KV cache of a rank", func(r RolePlan) string {
			return fmt.Sprintf("%s blocks of %s", grouped(r.Capacity.Blocks), size(r.Capacity.BlockBytes))
		})
		add("KV cache of a replica", func(r RolePlan) string { return grouped(r.Capacity.Tokens) + " tokens" })
		add("prompts of "+grouped(plan.Transfer.Tokens)+" at a time", func(r RolePlan) string { return grouped(r.Capacity.Requests) })
	}
	p.table("  ", rows)
	for _, r := range []RolePlan{plan.Prefill, plan.Decode} {
		if r.CapacityUnknown != "" {
			p.printf("  %s\n", p.paint(dim, r.CapacityUnknown))
			break
		}
	}
}

func (p *page) flows(t TransferPlan) {
	p.printf("\n  %s\n", p.paint(bold, "A new prompt of "+grouped(t.Tokens)+" tokens"))
	if t.Unknown != "" {
		p.printf("  %s\n", t.Unknown)
		return
	}
	p.printf("  %s bytes (%s) are written in all\n", grouped(t.Bytes), size(t.Bytes))
	rows := [][]string{{"prefill rank", "decode rank", "bytes"}}
	counted := len(t.Writers) > 0 && t.Writers[0].Copies > 0
	if counted {
		rows[0] = append(rows[0], "copies", "pieces")
	}
	for _, f := range t.Writers {
		row := []string{strconv.Itoa(f.Writer), strconv.Itoa(f.Reader), grouped(f.Bytes)}
		if counted {
			row = append(row, grouped(f.Copies), grouped(f.Pieces))
		}
		rows = append(rows, row)
	}
	p.table("  ", rows)
}

func (p *page) pods(role string, plan Plan, pods []PodPlan) {
	for i, pod := range pods {
		p.printf("\n  %s\n", p.paint(bold, fmt.Sprintf("%s pod %d of %d", role, i+1, len(pods))))
		t := pod.Ports
		ports := fmt.Sprintf("HTTP %d, agent %d, handshake %d, notify %d, data %d", t.HTTP, t.Agent, t.Handshake, t.Notify, t.Data)
		if plan.Mover == string(kvlayout.MoverEngine) {
			ports += fmt.Sprintf(", the engine's handshake from %d and notify from %d", t.EngineHandshake, t.EngineNotify)
		}
		p.printf("  %s %s\n", p.paint(dim, "ports"), ports)
		for _, e := range pod.Env {
			switch {
			case e.ValueFrom != nil && e.ValueFrom.FieldRef != nil:
				p.printf("    %s\n", p.paint(dim, e.Name+" from "+e.ValueFrom.FieldRef.FieldPath))
			case e.ValueFrom == nil:
				p.printf("    %s=%s\n", e.Name, shellWord(e.Value))
			}
		}
		p.command(pod.Command)
	}
}

// command writes a command line with a flag a line.
func (p *page) command(words []string) {
	var lines []string
	for _, w := range words {
		if n := len(lines); n > 0 && !strings.HasPrefix(w, "-") {
			lines[n-1] += " " + shellWord(w)
			continue
		}
		lines = append(lines, shellWord(w))
	}
	p.printf("    %s\n", verbatim(strings.Join(lines, " \\\n      ")))
}
