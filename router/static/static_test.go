package static

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
)

const good = `
- role: prefill
  pairing: k
  model: deepseek-ai/DeepSeek-R1
  layout: {tp: 4}
  blockSize: 64
  pods:
    - {host: 127.0.0.1, http: 8100, agent: 8101, handshake: 8102, notify: 8103}
- role: decode
  engine: vLLM
  ready: false
  layout: {tp: 4, dcp: 4, interleave: 64}
  pods:
    - {host: "::1", http: 8200, handshake: 8202, notify: 8203}
`

func TestParse(t *testing.T) {
	instances, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	p, d := instances[0], instances[1]
	if p.Role != kvlayout.Prefill || !p.Ready || p.Mover != kvlayout.MoverAgent || p.Mode != kvlayout.Write || p.Engine != kvlayout.Simulator ||
		p.KV.Layers != 61 || p.Pods[0].Agent != 8101 || p.Layout.TP != 4 {
		t.Errorf("%+v", p)
	}
	if d.Ready || d.Mover != kvlayout.MoverEngine || d.Layout.DCP != 4 || d.Pods[0].Host != "::1" {
		t.Errorf("%+v", d)
	}
}

func TestParseRefuses(t *testing.T) {
	const pods = `pods: [{host: a, http: 1, handshake: 2, notify: 3}]`
	for text, want := range map[string]string{
		`{`:                                 "yaml",
		`[{role: other}]`:                   `instance 0: role is "other"`,
		`[{role: prefill}]`:                 "layout.tp is 0",
		`[{role: decode, layout: {tp: 1}}]`: "pods is empty",
		`[{role: decode, layout: {tp: 1}, pods: [{http: 1}]}]`:                                   "pods[0].host is empty",
		`[{role: decode, layout: {tp: 1}, pods: [{host: a, http: 70000}]}]`:                      "pods[0].http is 70000",
		`[{role: decode, layout: {tp: 1}, mover: Auto, ` + pods + `}]`:                           `mover is "Auto"`,
		`[{role: decode, layout: {tp: 1}, colour: red, ` + pods + `}]`:                           `unknown field "colour"`,
		`[{role: decode, layout: {tp: 1}, pods: [{host: a, http: 1, handshake: 0, notify: 3}]}]`: "pods[0].handshake is 0",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "instances.yaml")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if instances, err := Read(path); err != nil || len(instances) != 2 {
		t.Errorf("%v, %v", instances, err)
	}
	if err := os.WriteFile(path, make([]byte, maxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "the limit is") {
		t.Errorf("too large: %v", err)
	}
}
