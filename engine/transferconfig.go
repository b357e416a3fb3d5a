package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// Connector names: vLLM's MoRIIO connector and the one that hands KV memory to
// the transfer agent.
const (
	MoRIIOConnector = "MoRIIOConnector"
	AgentConnector  = "AgentConnector"
)

// KV roles as vLLM spells them: the producer prefills, the consumer decodes.
const (
	Producer = "kv_producer"
	Consumer = "kv_consumer"
)

// TransferConfig is the value of --kv-transfer-config, as far as a pool uses it:
// other keys are refused, also those that mean something to vLLM.
type TransferConfig struct {
	Connector     string         `json:"kv_connector"`
	Role          string         `json:"kv_role"`
	FailurePolicy string         `json:"kv_load_failure_policy,omitempty"`
	Extra         map[string]any `json:"kv_connector_extra_config,omitempty"`
}

// Socket is the KV socket that an AgentConnector is told; "" when none is.
func (c TransferConfig) Socket() string {
	s, _ := c.Extra["socket"].(string)
	return s
}

// ParseTransferConfig decodes a JSON value of --kv-transfer-config.
func ParseTransferConfig(data []byte) (TransferConfig, error) {
	var c TransferConfig
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return TransferConfig{}, fmt.Errorf("--kv-transfer-config: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return TransferConfig{}, fmt.Errorf("--kv-transfer-config holds more than one JSON value")
	}
	return c, nil
}

// transferConfig renders --kv-transfer-config. A failed load always fails the
// request: a decode that prefills itself would hide that the split is broken.
func (in Input) transferConfig() (string, error) {
	c := TransferConfig{Connector: MoRIIOConnector, Role: Producer, FailurePolicy: "fail"}
	if in.Role == kvlayout.Decode {
		c.Role = Consumer
	}
	switch {
	case in.Mover == kvlayout.MoverAgent:
		c.Connector = AgentConnector
		c.Extra = map[string]any{"socket": in.KVSocket}
	case in.Backend != RDMA && in.Backend != XGMI:
		return "", fmt.Errorf("backend %q is none of the MoRIIO connector", in.Backend)
	default:
		c.Extra = map[string]any{
			"host_ip":            "$(" + HostIP + ")",
			"http_port":          in.Ports.HTTP,
			"handshake_port":     in.Ports.Handshake,
			"notify_port":        in.Ports.Notify,
			"proxy_ip":           "127.0.0.1", // the agent, which shares the pod's network
			"proxy_ping_port":    in.Ports.Ping,
			"backend":            strings.ToLower(string(in.Backend)),
			"transfer_timeout":   in.Timeouts.Transfer,
			"defer_timeout":      in.Timeouts.Defer,
			"recv_abort_timeout": in.Timeouts.ReceiveAbort,
		}
	}
	out, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode the transfer configuration: %w", err)
	}
	return string(out), nil
}

// simulatorFlags are what only the Simulator has.
func (in Input) simulatorFlags() ([]string, error) {
	geometry, err := json.Marshal(in.Geometry)
	if err != nil {
		return nil, fmt.Errorf("encode the geometry: %w", err)
	}
	return []string{"--sim-geometry", literal(string(geometry))}, nil
}
