package enginesim

import (
	"fmt"
	"net/http"
	"strings"
)

// State is what an instance knows of its own soundness.
type State struct {
	Role   string       `json:"role"` // prefill, decode or whole
	Groups []GroupState `json:"groups"`
}

// GroupState is one data parallel rank. With nothing to do, FreeBlocks equals
// Blocks and Live is 0; Violations is always 0 unless something wrote where
// nothing may be.
type GroupState struct {
	DP           int    `json:"dp"` // global
	Registered   bool   `json:"registered"`
	Reason       string `json:"reason,omitempty"` // why it is not
	Blocks       int    `json:"blocks"`
	FreeBlocks   int    `json:"freeBlocks"`
	Waiting      int    `json:"waiting"`
	Live         int64  `json:"live"`
	Violations   int64  `json:"violations"`
	BytesChecked int64  `json:"bytesChecked"`
	Answered     int64  `json:"answered"`
	Failed       int64  `json:"failed"`
	Refused      int64  `json:"refused"` // messages, by the agent
	// Held are the blocks that are not free, those of ended requests too while a copy
	// may touch them.
	Held []HeldBlocks `json:"held,omitempty"`
}

// HeldBlocks are the blocks of one request.
type HeldBlocks struct {
	Transfer string  `json:"transfer,omitempty"` // none for a request that is not split
	Request  string  `json:"request"`
	Blocks   []int32 `json:"blocks"`
}

// State is a view of the instance at work.
func (in *Instance) State() State {
	s := State{Role: "whole"}
	switch {
	case in.cfg.Socket == "":
	case in.cfg.Producer:
		s.Role = "prefill"
	default:
		s.Role = "decode"
	}
	for _, g := range in.groups {
		s.Groups = append(s.Groups, g.state())
	}
	return s
}

func (g *group) state() GroupState {
	s := GroupState{
		DP: g.cfg.Layout.DPStart + g.dp, Blocks: g.cfg.Blocks, Live: g.tally.live.Load(),
		Violations: g.tally.violations.Load(), BytesChecked: g.tally.checked.Load(),
		Answered: g.tally.answered.Load(), Failed: g.tally.failed.Load(), Refused: g.tally.refused.Load(),
		Registered: true,
	}
	s.FreeBlocks, s.Waiting = g.blocks.counts()
	s.Held = g.blocks.held()
	if g.link != nil {
		if _, err := g.link.current(); err != nil {
			s.Registered, s.Reason = false, reason(err)
		}
	}
	return s
}

// metrics writes the few series of vLLM that a router may look at, and our own.
func (in *Instance) metrics(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	series := []struct {
		name, kind, help string
		value            func(*group, GroupState) float64
	}{
		{"vllm:num_requests_running", "gauge", "Requests in work.", func(_ *group, s GroupState) float64 { return float64(s.Live - int64(s.Waiting)) }},
		{"vllm:num_requests_waiting", "gauge", "Requests that wait for KV blocks.", func(_ *group, s GroupState) float64 { return float64(s.Waiting) }},
		{"vllm:kv_cache_usage_perc", "gauge", "Used share of the KV blocks, 0 to 1.", func(_ *group, s GroupState) float64 { return 1 - float64(s.FreeBlocks)/float64(s.Blocks) }},
		{"vllm:prompt_tokens_total", "counter", "Prompt tokens taken in.", func(g *group, _ GroupState) float64 { return float64(g.tally.prompted.Load()) }},
		{"vllm:generation_tokens_total", "counter", "Tokens answered.", func(g *group, _ GroupState) float64 { return float64(g.tally.generated.Load()) }},
		{"enginesim_poison_violations_total", "counter", "Rows found written where nothing may be.", func(_ *group, s GroupState) float64 { return float64(s.Violations) }},
		{"enginesim_checked_bytes_total", "counter", "Bytes of KV memory compared.", func(_ *group, s GroupState) float64 { return float64(s.BytesChecked) }},
		{"enginesim_requests_failed_total", "counter", "Requests that ended in an error.", func(_ *group, s GroupState) float64 { return float64(s.Failed) }},
	}
	states := in.State().Groups
	for _, m := range series {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for i, g := range in.groups {
			fmt.Fprintf(&b, "%s{engine=\"%d\",model_name=%q} %g\n", m.name, states[i].DP, in.cfg.Served[0], m.value(g, states[i]))
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(b.String())) // a client that is gone needs no answer
}
