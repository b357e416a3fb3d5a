package router

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/router/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	goldenTransfer = "tx-00112233-4455-4677-8899-aabbccddeeff"
	goldenDigits   = "00112233445546778899aabbccddeeff"
)

// shapes are pairs of instances, each with the ranks that are chosen.
func shapes() map[string]pair {
	pods := func(host string, ports, perPod, n int) []Pod {
		out := make([]Pod, n)
		for i := range out {
			out[i] = Pod{
				Name: fmt.Sprintf("pool-%d-%d", ports, i), Index: i, Host: host + string(rune('1'+i)), HTTP: ports, Agent: ports + 1,
				Handshake: ports + 2, Notify: ports + 3, DPStart: i * perPod,
			}
		}
		return out
	}
	build := func(mover kvlayout.Mover, prefill, decode kvlayout.Layout, podsP, podsD, rankP, rankD int) pair {
		p := instanceAt(kvlayout.Prefill, 0)
		d := instanceAt(kvlayout.Decode, 0)
		p.Mover, d.Mover = mover, mover
		p.Layout, d.Layout = prefill, decode
		p.Pods = pods("10.0.0.", 20000, p.Layout.Defaulted().DPLocal, podsP)
		d.Pods = pods("fd00::", 20064, d.Layout.Defaulted().DPLocal, podsD)
		loadOf := func(*Pod, int) *load { return &load{vitals: new(vitals)} }
		return pair{p.clone().slots(loadOf)[rankP], d.clone().slots(loadOf)[rankD]}
	}
	tp4 := kvlayout.Layout{TP: 4}
	return map[string]pair{
		"agent-tp4":         build(kvlayout.MoverAgent, tp4, kvlayout.Layout{TP: 4, DCP: 4, Interleave: 64}, 1, 1, 0, 0),
		"agent-dp8":         build(kvlayout.MoverAgent, kvlayout.Layout{TP: 1, DP: 2}, kvlayout.Layout{TP: 1, DP: 8}, 1, 1, 1, 5),
		"agent-dp16-2pods":  build(kvlayout.MoverAgent, tp4, kvlayout.Layout{TP: 1, DP: 16, DPLocal: 8}, 1, 2, 0, 11),
		"engine-tp4":        build(kvlayout.MoverEngine, tp4, tp4, 1, 1, 0, 0),
		"engine-dp16-2pods": build(kvlayout.MoverEngine, kvlayout.Layout{TP: 1, DP: 16, DPLocal: 8}, kvlayout.Layout{TP: 1, DP: 16, DPLocal: 8}, 2, 2, 3, 11),
	}
}

const goldenCompletion = `{"model":"m", "prompt" : "Caf\u00e9", "max_tokens":64,"temperature":1.0,"seed":12345678901234567890,
 "stream":true,"stream_options":{"include_usage":true},"stop":["\n"],"stop_token_ids":[2],"x_new":{"a":[1, 2]}}`

const goldenChat = `{"messages":[{"role":"user","content":"hi"}],"model":"m","max_completion_tokens":7,"n":1,"min_tokens":3,"ignore_eos":false,"tools":[{"type":"function"}],"kv_transfer_params":null,"logit_bias":{"5":-100.0}}`

// TestLegs holds what engines get, byte for byte.
func TestLegs(t *testing.T) {
	for name, p := range shapes() {
		var out bytes.Buffer
		for endpoint, body := range map[string]string{completions: goldenCompletion, chatCompletions: goldenChat} {
			if name != "agent-tp4" && endpoint == chatCompletions {
				continue
			}
			r, f := inspect(endpoint, "", body)
			if f != nil {
				t.Fatal(f)
			}
			for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
				leg := newLeg(p.of(role), endpoint, p.legHeader(nil, role, p.requestID("mine", goldenTransfer)), r.body(role, p.params(role, goldenTransfer)))
				sent := text(r.body(role, p.params(role, goldenTransfer)))
				if !json.Valid([]byte(sent)) || leg.ContentLength != int64(len(sent)) {
					t.Errorf("%s %s: %d bytes announced: %s", name, role, leg.ContentLength, sent)
				}
				out.WriteString("POST " + leg.URL.String() + "\n")
				for _, key := range slices.Sorted(maps.Keys(leg.Header)) {
					out.WriteString(key + ": " + strings.Join(leg.Header[key], ", ") + "\n")
				}
				out.WriteString("\n" + sent + "\n\n")
			}
		}
		golden(t, name+".http", sortedLegs(out.String()))
	}
}

// sortedLegs puts the endpoints in one order.
func sortedLegs(s string) string {
	legs := strings.SplitAfter(s, "}\n\n")
	slices.Sort(legs)
	return strings.Join(legs, "")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s", name, got)
	}
}

func TestRequestIDOfStockEngines(t *testing.T) {
	p := shapes()["engine-tp4"]
	id := p.requestID("mine", goldenTransfer)
	prefill, decode, digits, err := moriio.ParseRequestID("cmpl-" + id + "-0-12345678")
	if err != nil {
		t.Fatal(err)
	}
	if prefill != "host:10.0.0.1,handshake:20002,notify:20003" || decode != "host:fd00::1,handshake:20066,notify:20067" || digits != goldenDigits {
		t.Errorf("%q, %q, %q", prefill, decode, digits)
	}
}

func TestRequestIDWithoutTheClients(t *testing.T) {
	if id := shapes()["agent-tp4"].requestID("", goldenTransfer); id != goldenTransfer {
		t.Errorf("%q", id)
	}
}

func TestAddressesAreConcealed(t *testing.T) {
	m := NewServer(Options{Registry: NewRegistry(), Policy: func() policy.Policy { return policy.LeastLoaded{} }}).masker(shapes()["agent-tp4"])
	for in, want := range map[string]string{
		"dial tcp 10.0.0.1:20000: refused":          "dial tcp the prefill pod: refused",
		"dial tcp [fd00::1]:20064: refused":         "dial tcp the decode pod: refused",
		"peer fd00::1 has gone":                     "peer the decode pod has gone",
		"peer 10.0.0.11 has gone":                   "peer an address has gone",
		"from 192.168.7.9:1234 and [2001:db8::5]":   "from an address and an address",
		"at 2001:db8:0:1:2:3:4:5 and 2001:db8:1::7": "at an address and an address",
		"layer 3 row 17: 128 of 256 bytes":          "layer 3 row 17: 128 of 256 bytes",
		"rule at 12:30:45":                          "rule at 12:30:45",
		"a std::vector of 1.2.3":                    "a std::vector of 1.2.3",
		"fd00::7, ::1 and fe80::1%eth0. End":        "an address, an address and an address. End",
		"kv@10.9.8.7:1/x_10.9.8.6":                  "kv@an address/x_an address",
		"tp 4, dcp 4: interleave 64":                "tp 4, dcp 4: interleave 64",
		"engine of pool-20000-0 is full":            "engine of the prefill pod is full",
		"bad \xff byte":                             "bad ? byte",

		"dial unix /run/a b/prefill.sock: connect: no such file":  "dial a socket a socket: connect: no such file",
		"dial unix /run/pdpool/prefill.sock: connect: refused":    "dial a socket: connect: refused",
		"dial unix @abstract: refused":                            "dial a socket: refused",
		"at unix:///run/kv, ipc:///tmp/5d1c and unixgram /run/kv": "at a socket, a socket and a socket",
		"dial unix prefill.sock: refused (/run/x.sock)":           "dial unix a socket: refused (a socket)",
		"unix time 17 of the socket":                              "unix time 17 of the socket",
	} {
		if got := m.conceal(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		`{"message":"dial unix \/run\/kv.sock: refused"}`:     `{"message":"dial a socket: refused"}`,
		`{"message":"dial\n/run/kv.sock: \"/run/kv.sock\""}`:  `{"message":"dial\na socket: \"a socket\""}`,
		`{"message":"a\u000aunix /run/kv","path":"kv.sock"}`:  `{"message":"a\na socket","path":"a socket"}`,
		`{"message":"to\n10.9.8.7:1\u0022","n":10.25}`:        `{"message":"to\nan address\"","n":10.25}`,
		`{"message":"to\u0031\u0030.9.8.7"}`:                  `{"message":"toan address"}`,
		`{"message":"caf\u00e9"}`:                             `{"message":"caf\u00e9"}`,
		`{"message":"\\/run/kv.sock","path":"ipc://\/tmp/x"}`: `{"message":"a socket","path":"a socket"}`,
	} {
		if got := m.body(in); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s became %s, not %s", in, got, want)
		}
	}
	if got := m.conceal(strings.Repeat("é", 1000)); len(got) > maxReasonText+3 {
		t.Errorf("%d bytes", len(got))
	}
}
