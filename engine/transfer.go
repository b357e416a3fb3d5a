package engine

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// transferKeys are the keys of --kv-transfer-config; vLLM refuses others.
var transferKeys = []string{
	"kv_connector", "kv_role", "kv_connector_extra_config", "kv_connector_module_path", "kv_load_failure_policy",
	"engine_id", "kv_port", "kv_buffer_device", "enable_permute_local_kv",
}

// moriioKeys are those that the MoRIIO connector looks for in its own configuration.
var moriioKeys = []string{
	"host_ip", "proxy_ip", "proxy_ping_port", "http_port", "handshake_port", "notify_port", "read_mode", "backend",
	"transfer_timeout", "defer_timeout", "recv_abort_timeout", "qp_per_transfer", "post_batch_size", "num_workers",
}

// otherConnectors are those that vLLM 0.33.0 has besides MoRIIO's.
var otherConnectors = []string{
	"NixlConnector", "NixlPullConnector", "NixlPushConnector", "MooncakeConnector", "MooncakeStoreConnector", "MultiConnector",
	"LMCacheConnectorV1", "LMCacheMPConnector", "OffloadingConnector", "SimpleCPUOffloadConnector", "HiSparseConnector",
	"FlexKVConnectorV1", "HF3FSKVConnector", "DecodeBenchConnector", "ExampleConnector", "ExampleHiddenStatesConnector",
}

// transfer reads --kv-transfer-config.
func (f *facts) transfer() {
	index := f.at(transferFlag)
	object, err := f.object(transferFlag)
	if err != nil && !slices.ContainsFunc(f.notes, func(n Note) bool { return n.Kind == Stops && n.Field == "transfer" }) {
		f.stops(index, "transfer", "%s", err)
	}
	if object == nil {
		if index < 0 {
			f.absent("there is no --kv-transfer-config: this instance takes part in no transfer")
		}
		return
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(transferKeys, key) {
			f.stops(index, "transfer", "vLLM refuses the key %q of --kv-transfer-config", brief(key))
		}
	}
	in := &f.in
	in.Connector, _ = object["kv_connector"].(string)
	in.FailurePolicy, _ = object["kv_load_failure_policy"].(string)
	switch in.Connector {
	case MoRIIOConnector:
		in.Mover = kvlayout.MoverEngine
	case AgentConnector:
		in.Mover, in.Mode = kvlayout.MoverAgent, kvlayout.Write
	default:
		f.connector(index, object)
	}
	f.kvRole(index, object)
	if in.Connector == MoRIIOConnector {
		extra, _ := object["kv_connector_extra_config"].(map[string]any)
		f.moriio(index, extra)
	}
}

// absent is about what a launch with a program has to have for a transfer. Arguments
// by themselves may leave it out.
func (f *facts) absent(text string) {
	kind := Stops
	if f.launch.bare {
		kind = Remark
	}
	f.keep(-1, kind, "transfer", "%s", text)
}

// connector notes one that no rules are known for.
func (f *facts) connector(index int, object map[string]any) {
	name := f.in.Connector
	ours := []string{MoRIIOConnector, AgentConnector}
	near := nearestOf(name, append(ours, otherConnectors...))
	switch {
	case f.unfilled(name): // noted already
	case name == "":
		f.stops(index, "transfer", "--kv-transfer-config names no kv_connector: this instance takes part in no transfer")
	case near != "" && !slices.Contains(otherConnectors, name) && object["kv_connector_module_path"] == nil:
		f.stops(index, "transfer", "vLLM has no connector %s: did you mean %s?", brief(name), near)
	default:
		f.unread(index, "transfer", "no rules are known for the connector %s, only for %s and %s", brief(name), MoRIIOConnector, AgentConnector)
	}
}

func (f *facts) kvRole(index int, object map[string]any) {
	role := asText(object["kv_role"])
	switch {
	case role == Producer:
		f.in.Role = kvlayout.Prefill
	case role == Consumer:
		f.in.Role = kvlayout.Decode
	case f.unfilled(role): // noted already
	case role == "":
		f.stops(index, "transfer", "--kv-transfer-config names no kv_role, and vLLM wants one with a connector")
	case role != "kv_both":
		f.stops(index, "transfer", "the kv_role %q is none", brief(role))
	case f.in.Mover != "":
		f.unread(index, "transfer", "kv_both is neither side of a pair: use %s for prefill and %s for decode", Producer, Consumer)
	}
}

// moriio reads the connector's own configuration.
func (f *facts) moriio(index int, extra map[string]any) {
	in := &f.in
	in.Mode = f.readMode(index, extra["read_mode"])
	f.moriioUnknown(index, extra)
	switch backend := strings.ToLower(asText(extra["backend"])); backend {
	case "", "rdma":
		in.Backend = RDMA
	case "xgmi":
		in.Backend = XGMI
	default:
		f.stops(index, "transfer.backend", "the backend %q is neither rdma nor xgmi", brief(backend))
	}
	for _, p := range []struct {
		key     string
		value   *int
		missing int
	}{
		{"handshake_port", &in.Ports.Handshake, moriioHandshake},
		{"notify_port", &in.Ports.Notify, moriioNotify},
		{"proxy_ping_port", &in.Ports.Ping, 0},
	} {
		*p.value = p.missing
		v, ok := extra[p.key]
		if !ok || v == nil || v == "" {
			continue
		}
		if *p.value, ok = port(v); !ok && !f.unfilled(asText(v)) {
			f.stops(index, "", "%s is %q, which is no port", p.key, brief(asText(v)))
		}
	}
	switch http, ok := port(extra["http_port"]); {
	case extra["http_port"] == nil:
		f.stops(index, "transfer", "http_port is missing, and the connector stops without it")
	case f.unfilled(asText(extra["http_port"])):
	case !ok:
		f.stops(index, "transfer", "http_port is %q, which is no port", brief(asText(extra["http_port"])))
	case http != in.Ports.HTTP && f.text("port") != "":
		f.note(index, "http_port %d is not the port %d that the engine serves on: a router would be told the wrong one", http, in.Ports.HTTP)
	}
	in.Timeouts = Timeouts{
		Transfer:     f.timeout(index, extra, "transfer_timeout", moriioTransfer),
		Defer:        f.timeout(index, extra, "defer_timeout", moriioDefer),
		ReceiveAbort: f.timeout(index, extra, "recv_abort_timeout", moriioReceive),
	}
}

// moriioUnknown names the keys that the connector does not look for.
func (f *facts) moriioUnknown(index int, extra map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		if slices.Contains(moriioKeys, key) {
			continue
		}
		if near := nearestOf(key, moriioKeys); near != "" {
			f.note(index, "the connector has no key %q: did you mean %s?", brief(key), near)
		} else {
			f.note(index, "the connector does not look at the key %q", brief(key))
		}
	}
}

// readMode is the mode that the release takes: from read_mode, which counts when
// it is true or 1 in any case, or in old ones from the environment.
func (f *facts) readMode(index int, value any) kvlayout.Mode {
	read := func(v string) bool {
		v = strings.ToLower(strings.TrimSpace(v))
		return v == "true" || v == "1"
	}
	variable, set := f.in.Variable(readModeVariable)
	inFlag := read(asText(value))
	fromEnv := kvlayout.Supports(f.in.Version, kvlayout.FeatureReadModeEnv)
	switch {
	case fromEnv == kvlayout.Has && value != nil && inFlag != read(variable):
		f.note(index, "vLLM %s takes the mode from %s, not from read_mode", f.in.Version, readModeVariable)
	case fromEnv != kvlayout.Unknown || !set || read(variable) == inFlag:
	case value == nil:
		f.unread(index, "transfer.mode", "%s says the mode up to vLLM 0.22.0 and nothing from 0.23.0 on, and the release is not known", readModeVariable)
	default:
		f.unread(index, "transfer.mode", "%s says the mode up to vLLM 0.22.0 and read_mode, which says otherwise, from 0.23.0 on, and the release is not known", readModeVariable)
	}
	if inFlag && fromEnv != kvlayout.Has || fromEnv == kvlayout.Has && read(variable) {
		return kvlayout.Read
	}
	return kvlayout.Write
}

// timeout is in seconds, rounded up.
func (f *facts) timeout(index int, extra map[string]any, key string, missing int) int {
	v, ok := extra[key]
	if !ok {
		return missing
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(asText(v)), 64)
	if err != nil || x <= 0 || x > 1<<30 || math.IsNaN(x) {
		f.stops(index, "transfer", "%s is %q, and has to be a number of seconds above 0", key, brief(asText(v)))
		return missing
	}
	return int(math.Ceil(x))
}

// asText is how Python would print a JSON value that is no object or list.
func asText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
