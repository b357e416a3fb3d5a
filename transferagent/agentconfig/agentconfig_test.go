package agentconfig_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

var update = flag.Bool("update", false, "write the golden files anew")

func valid() *agentconfig.Config {
	return &agentconfig.Config{
		Version: agentconfig.Version, Namespace: "serving", Pool: "deepseek", PoolUID: "3c9e0f6e-0000-4000-8000-000000000001",
		Revision: "5f7d9c", Replica: 1, Attempt: 2, Pod: 1, Pods: 2, Role: kvlayout.Decode, Pairing: "0123456789abcdef",
		Engine: kvlayout.Simulator, Mover: kvlayout.MoverAgent, Mode: kvlayout.Write, Backend: agentconfig.SharedMemory,
		Model: "deepseek-ai/DeepSeek-R1", Served: "deepseek",
		Layout: kvlayout.Layout{TP: 8, PP: 1, DP: 4, DPLocal: 2, DCP: 4, Interleave: 64},
		Block:  64, KVType: kvlayout.BF16,
		KV: kvlayout.Geometry{
			Model: "deepseek-ai/DeepSeek-R1", Kind: kvlayout.MLA, Layers: 61, AttentionHeads: 128, KVHeads: 1, HeadValues: 576, MoE: true,
		},
		DPStart: 2, Ports: ports(),
		Timeouts: agentconfig.Timeouts{Transfer: 30, Defer: 60, ReceiveAbort: 120, Drain: 120},
		KVSocket: "/run/pdpool/kv.sock", SharedDir: "/run/pdpool/serving",
		KeyDir: "/etc/pdpool/key", DrainToken: strings.Repeat("0f", 32),
	}
}

func ports() agentconfig.Ports {
	return agentconfig.Ports{
		HTTP: 20000, Agent: 20001, Handshake: 20002, Notify: 20003, Data: 20004, Ping: 20005, Metrics: 20006,
		Master: 20007, RPC: 20008, VLLM: 20009, EngineHandshake: 20020, EngineNotify: 20040,
	}
}

func engineMover() *agentconfig.Config {
	c := valid()
	c.Engine, c.Mover, c.Backend = kvlayout.VLLM, kvlayout.MoverEngine, agentconfig.RDMA
	c.EngineVersion = "0.33.0"
	c.KVSocket, c.SharedDir = "", ""
	c.Routers = []string{"deepseek-router.serving.svc:36367", "10.0.0.1:1", "[fd00::1]:65535"}
	return c
}

// The documents are a contract between operator and agents of other versions.
func TestGolden(t *testing.T) {
	config, err := valid().Encode()
	if err != nil {
		t.Fatal(err)
	}
	engine, err := engineMover().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		"config-agent.json":    string(config),
		"config-engine.json":   string(engine),
		"ports.json":           ports().Encode(),
		"instance.json":        valid().Instance().Encode(),
		"instance-engine.json": engineMover().Instance().Encode(),
	} {
		path := "testdata/" + name
		if *update {
			if err := os.WriteFile(path, []byte(got+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, want := range []*agentconfig.Config{valid(), engineMover()} {
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := agentconfig.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("parsed (-want +got):\n%s", diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good, err := valid().Encode()
	if err != nil {
		t.Fatal(err)
	}
	with := func(old, replacement string) string { return strings.Replace(string(good), old, replacement, 1) }
	for _, tc := range []struct{ name, in, says string }{
		{"nothing", "", "is empty"},
		{"no JSON", "x", "invalid character"},
		{"two values", string(good) + "{}", "more than one"},
		{"no version", with(`"version":1,`, ""), "version 0"},
		{"a newer version", with(`"version":1`, `"version":2`), "version 2"},
		{"an unknown field", with(`"replica":1`, `"replica":1,"replcia":2`), `"replcia"`},
		{"an unknown field inside", with(`"drain":120`, `"drain":120,"dran":1`), `"dran"`},
		{"another type", with(`"replica":1`, `"replica":"1"`), "replica"},
		{"too long", with(`"serving"`, `"`+strings.Repeat("x", agentconfig.MaxBytes)+`"`), "limit"},
	} {
		if c, err := agentconfig.Parse([]byte(tc.in)); err == nil || !strings.Contains(err.Error(), tc.says) || c != nil {
			t.Errorf("%s: %v, want one that says %q", tc.name, err, tc.says)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*agentconfig.Config)
		says   string
	}{
		{"version", func(c *agentconfig.Config) { c.Version = 7 }, "version is 7"},
		{"namespace", func(c *agentconfig.Config) { c.Namespace = "" }, "namespace is empty"},
		{"pool", func(c *agentconfig.Config) { c.Pool = strings.Repeat("x", 2000) }, "pool has 2000 bytes"},
		{"poolUID", func(c *agentconfig.Config) { c.PoolUID = "" }, "poolUID is empty"},
		{"revision", func(c *agentconfig.Config) { c.Revision = "" }, "revision is empty"},
		{"pairing", func(c *agentconfig.Config) { c.Pairing = "" }, "pairing is empty"},
		{"model", func(c *agentconfig.Config) { c.Model = "" }, "model is empty"},
		{"served", func(c *agentconfig.Config) { c.Served = "" }, "served is empty"},
		{"replica", func(c *agentconfig.Config) { c.Replica = -1 }, "replica is -1"},
		{"attempt", func(c *agentconfig.Config) { c.Attempt = -1 }, "attempt is -1"},
		{"role", func(c *agentconfig.Config) { c.Role = "both" }, `role is "both"`},
		{"engine", func(c *agentconfig.Config) { c.Engine = "TGI" }, `engine is "TGI", allowed are vLLM, SGLang, Simulator`},
		{"mover", func(c *agentconfig.Config) { c.Mover = kvlayout.MoverAuto }, `mover is "Auto"`},
		{"engineVersion", func(c *agentconfig.Config) { c.EngineVersion = strings.Repeat("1", 2000) }, "engineVersion has 2000 bytes"},
		{"mode", func(c *agentconfig.Config) { c.Mode = kvlayout.Read }, `mode is "Read"`},
		{"backend", func(c *agentconfig.Config) { c.Backend = agentconfig.RDMA }, `backend is "RDMA"`},
		{"tp", func(c *agentconfig.Config) { c.Layout.TP = -8 }, "layout.tp is -8"},
		{"dcp", func(c *agentconfig.Config) { c.Layout.DCP = 3 }, "layout.dcp is 3"},
		{"interleave", func(c *agentconfig.Config) { c.Layout.Interleave = -1 }, "layout.interleave is -1"},
		{"dpStart", func(c *agentconfig.Config) { c.DPStart = 3 }, "dpStart is 3"},
		{"dpStart that overflows", func(c *agentconfig.Config) { c.DPStart = 1<<63 - 1 }, "dpStart is"},
		{"pods", func(c *agentconfig.Config) { c.Pods = 0 }, "pods is 0"},
		{"pod", func(c *agentconfig.Config) { c.Pod = 2 }, "pod is 2, allowed are 0 to 1"},
		{"block", func(c *agentconfig.Config) { c.Block = 0 }, "blockSize is 0"},
		{"kvType", func(c *agentconfig.Config) { c.KVType = "INT3" }, `kvType is "INT3"`},
		{"kind", func(c *agentconfig.Config) { c.KV.Kind = "" }, `geometry.kind is ""`},
		{"layers", func(c *agentconfig.Config) { c.KV.Layers = 0 }, "geometry.layers is 0"},
		{"kvHeads", func(c *agentconfig.Config) { c.KV.KVHeads = 0 }, "geometry.kvHeads is 0"},
		{"headValues", func(c *agentconfig.Config) { c.KV.HeadValues = 0 }, "geometry.headValues is 0"},
		{"transfer", func(c *agentconfig.Config) { c.Timeouts.Transfer = 0 }, "timeouts.transfer is 0"},
		{"defer", func(c *agentconfig.Config) { c.Timeouts.Defer = 0 }, "timeouts.defer is 0"},
		{"receiveAbort", func(c *agentconfig.Config) { c.Timeouts.ReceiveAbort = 100000 }, "timeouts.receiveAbort is 100000"},
		{"drain", func(c *agentconfig.Config) { c.Timeouts.Drain = -1 }, "timeouts.drain is -1"},
		{"kvSocket", func(c *agentconfig.Config) { c.KVSocket = "kv.sock" }, `kvSocket is "kv.sock"`},
		{"long kvSocket", func(c *agentconfig.Config) { c.KVSocket = "/" + strings.Repeat("x", 107) }, "at most 107 bytes"},
		{"sharedDir", func(c *agentconfig.Config) { c.SharedDir = "" }, `sharedDir is ""`},
		{"routers", func(c *agentconfig.Config) { c.Routers = []string{"a:1"} }, "routers has 1 entries"},
		{"keyDir", func(c *agentconfig.Config) { c.KeyDir = "key" }, `keyDir is "key"`},
		{"long keyDir", func(c *agentconfig.Config) { c.KeyDir = "/" + strings.Repeat("x", 1024) }, "at most 1024 bytes"},
		{"drainToken", func(c *agentconfig.Config) { c.DrainToken = "secret" }, `drainToken is "secret"`},
		{"short drainToken", func(c *agentconfig.Config) { c.DrainToken = "00ff" }, "64 hex digits"},
		{"no port", func(c *agentconfig.Config) { c.Ports.Notify = 0 }, "ports.notify is 0"},
		{"no data port", func(c *agentconfig.Config) { c.Backend, c.Ports.Data = agentconfig.TCP, 0 }, "ports.data is 0"},
		{"port out of range", func(c *agentconfig.Config) { c.Ports.Master = 65536 }, "ports.master is 65536"},
		{"same port", func(c *agentconfig.Config) { c.Ports.Agent = c.Ports.HTTP }, "ports.agent (20000, 1 ports) overlaps ports.http"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := valid()
			tc.change(c)
			wantProblems(t, c.Validate(), tc.says)
			if b, err := c.Encode(); err == nil || b != nil {
				t.Errorf("encoded to %d bytes, %v", len(b), err)
			}
		})
	}
}

func TestValidateEngineMover(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*agentconfig.Config)
		says   string
	}{
		{"backend", func(c *agentconfig.Config) { c.Backend = agentconfig.TCP }, `backend is "TCP", allowed are RDMA, XGMI`},
		{"router without port", func(c *agentconfig.Config) { c.Routers = []string{"a"} }, `routers[0] is "a"`},
		{"router as URL", func(c *agentconfig.Config) { c.Routers[1] = "http://a:1" }, `routers[1] is "http://a:1"`},
		{"router with port 0", func(c *agentconfig.Config) { c.Routers[0] = "10.0.0.1:0" }, "routers[0]"},
		{"router with a bare IPv6", func(c *agentconfig.Config) { c.Routers[0] = "fd00::1:80" }, "routers[0]"},
		{"too many routers", func(c *agentconfig.Config) { c.Routers = make([]string, 65) }, "routers has 65 entries"},
		{"ping", func(c *agentconfig.Config) { c.Ports.Ping = 0 }, "ports.ping is 0"},
		{"ranks reach into another range", func(c *agentconfig.Config) { c.Ports.EngineNotify = c.Ports.EngineHandshake + 8 }, "ports.engineNotify (20028, 9 ports) overlaps ports.engineHandshake (20020, 9 ports)"},
		{"ranks reach past the last port", func(c *agentconfig.Config) { c.Ports.EngineNotify = 65530 }, "ports.engineNotify is 65530, allowed are 1 to 65527"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := engineMover()
			tc.change(c)
			wantProblems(t, c.Validate(), tc.says)
		})
	}
	c := engineMover()
	c.Ports.EngineNotify = c.Ports.EngineHandshake + 9
	if err := c.Validate(); err != nil {
		t.Errorf("ranges that touch: %v", err)
	}
}

func wantProblems(t *testing.T, err error, says ...string) {
	t.Helper()
	var e *agentconfig.InvalidError
	if !errors.As(err, &e) || len(e.Problems) != len(says) {
		t.Fatalf("error is %v, want %d problems", err, len(says))
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error is %q, want one that says %q", err, s)
		}
	}
}

// One error names everything, so that one look is enough.
func TestValidateNamesAll(t *testing.T) {
	c := valid()
	c.Pool, c.Block, c.Ports.HTTP = "", 0, 0
	wantProblems(t, c.Validate(), "pool is empty", "blockSize is 0", "ports.http is 0")
}

func TestAnnotations(t *testing.T) {
	p, err := agentconfig.ParsePorts(ports().Encode())
	if diff := cmp.Diff(ports(), p); diff != "" || err != nil {
		t.Errorf("ports: %v (-want +got):\n%s", err, diff)
	}
	i, err := agentconfig.ParseInstance(valid().Instance().Encode())
	if diff := cmp.Diff(valid().Instance(), i); diff != "" || err != nil {
		t.Errorf("instance: %v (-want +got):\n%s", err, diff)
	}
	// A newer operator may say more.
	if _, err := agentconfig.ParsePorts(`{"http":1,"new":2}`); err != nil {
		t.Errorf("ports with a new field: %v", err)
	}
	if _, err := agentconfig.ParseInstance(strings.Replace(i.Encode(), "{", `{"new":[],`, 1)); err != nil {
		t.Errorf("instance with a new field: %v", err)
	}
	for in, says := range map[string]string{
		"": "is empty", "[]": "cannot unmarshal", `{}`: "http is 0", `{"http":65536}`: "http is 65536",
		`{"http":1,"notify":-1}`: "notify is -1", `{"http":1}{}`: "more than one",
		strings.Repeat(" ", 9000): "limit",
	} {
		if _, err := agentconfig.ParsePorts(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want one that says %q", in, err, says)
		}
	}
	i.Model, i.Layout.DCP = "", 3
	if _, err := agentconfig.ParseInstance(i.Encode()); err == nil || !strings.Contains(err.Error(), "model is empty; layout.dcp is 3") {
		t.Errorf("broken instance: %v", err)
	}
	if _, err := agentconfig.ParseInstance("{"); err == nil {
		t.Error("half a document was accepted")
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range []*agentconfig.Config{valid(), engineMover()} {
		b, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := agentconfig.Parse(b)
		if err != nil || c.Validate() != nil {
			return
		}
		again, err := c.Encode()
		if err != nil {
			if len(b) > agentconfig.MaxBytes/8 {
				return // escaping may make a long document too long
			}
			t.Fatalf("valid, but: %v", err)
		}
		back, err := agentconfig.Parse(again)
		if err != nil {
			t.Fatal(err)
		}
		// An empty list and none are the same.
		if len(c.Routers) == 0 {
			c.Routers = nil
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Fatalf("written and read (-first +again):\n%s", diff)
		}
	})
}

func FuzzAnnotations(f *testing.F) {
	f.Add(ports().Encode())
	f.Add(valid().Instance().Encode())
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := agentconfig.ParsePorts(s); err == nil {
			if again, err := agentconfig.ParsePorts(p.Encode()); err != nil || again != p {
				t.Fatalf("ports %+v became %+v, %v", p, again, err)
			}
		}
		i, err := agentconfig.ParseInstance(s)
		if err != nil || !json.Valid([]byte(i.Encode())) || len(i.Encode()) > 8<<10 {
			return
		}
		if again, err := agentconfig.ParseInstance(i.Encode()); err != nil || again != i {
			t.Fatalf("instance %+v became %+v, %v", i, again, err)
		}
	})
}
