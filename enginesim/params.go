package enginesim

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// transferParams is the part of kv_transfer_params that an engine reads.
type transferParams struct {
	DoRemoteDecode  bool   `json:"do_remote_decode"`
	DoRemotePrefill bool   `json:"do_remote_prefill"`
	Transfer        string `json:"transfer_id"`
	Host            string `json:"remote_host"`
	Handshake       number `json:"remote_handshake_port"`
	Notify          number `json:"remote_notify_port"`
	DPRank          number `json:"remote_dp_rank"`
	TPSize          number `json:"remote_tp_size"`
	TPSizeOld       number `json:"tp_size"`
}

// number is a JSON number, or a string of digits: vLLM keeps ports as either.
type number int

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if text == "null" {
		return nil
	}
	v, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%.40q is not a whole number", text)
	}
	*n = number(v)
	return nil
}

// required are keys without which a real engine stops, even if null will do.
var required = []string{"transfer_id", "remote_engine_id", "remote_block_ids"}

// parseTransferParams reads kv_transfer_params; nil when it asks for no transfer.
func parseTransferParams(raw json.RawMessage) (*transferParams, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var keys map[string]json.RawMessage
	var p transferParams
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, badRequest("kv_transfer_params is not an object")
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, badRequest("kv_transfer_params: %v", err)
	}
	if !p.DoRemoteDecode && !p.DoRemotePrefill {
		return nil, nil
	}
	for _, key := range required {
		if _, ok := keys[key]; !ok {
			return nil, badRequest("kv_transfer_params lacks %s", key)
		}
	}
	switch {
	case p.DoRemoteDecode && p.DoRemotePrefill:
		return nil, badRequest("kv_transfer_params asks for do_remote_decode and do_remote_prefill at once")
	case p.Transfer == "" || len(p.Transfer) > kvproto.MaxTransferID:
		return nil, badRequest("kv_transfer_params: transfer_id has %d bytes, not 1 to %d", len(p.Transfer), kvproto.MaxTransferID)
	}
	return &p, nil
}

// peer finds the prefill side's address: in the parameters, or as MoRIIO's router
// writes it into the request id.
func (p *transferParams) peer(requestID string) (kvproto.Peer, error) {
	peer := kvproto.Peer{
		Host: p.Host, Handshake: int(p.Handshake), Notify: int(p.Notify), DP: int(p.DPRank),
		TPSize: int(max(p.TPSize, p.TPSizeOld)),
	}
	if peer.Host == "" {
		prefill, _, _, err := moriio.ParseRequestID(requestID)
		if err != nil {
			return peer, badRequest("kv_transfer_params has no remote_host, and the request id no address")
		}
		if peer.Host, peer.Handshake, peer.Notify, err = moriio.ParseZMQAddress(prefill); err != nil {
			return peer, badRequest("request id: %v", err)
		}
	}
	switch {
	case peer.Handshake < 1 || peer.Handshake > 65535 || peer.Notify < 1 || peer.Notify > 65535:
		return peer, badRequest("kv_transfer_params: ports %d and %d", peer.Handshake, peer.Notify)
	case peer.DP < 0 || peer.DP > math.MaxInt32 || peer.TPSize < 0 || peer.TPSize > maxRanks:
		return peer, badRequest("kv_transfer_params: remote_dp_rank %d, remote_tp_size %d", peer.DP, peer.TPSize)
	}
	return peer, nil
}

// produced is what prefill answers, in vLLM's order of keys. The address of the
// agent is not the engine's to know: who sent the request has it.
type produced struct {
	DoRemotePrefill bool      `json:"do_remote_prefill"`
	DoRemoteDecode  bool      `json:"do_remote_decode"`
	Blocks          [][]int32 `json:"remote_block_ids"`
	Engine          string    `json:"remote_engine_id"`
	DPRank          int       `json:"remote_dp_rank"`
	DPSize          int       `json:"remote_dp_size"`
	DPSizeLocal     int       `json:"remote_dp_size_local"`
	TPSize          int       `json:"tp_size"`
	Transfer        string    `json:"transfer_id"`
}

func (in *Instance) produced(g *group, transfer string, blocks []int32) *produced {
	l := in.cfg.Layout
	return &produced{
		DoRemotePrefill: true, Blocks: [][]int32{blocks}, Engine: in.Addr().String(),
		DPRank: l.DPStart + g.dp, DPSize: l.DP, DPSizeLocal: l.DPLocal, TPSize: l.TP, Transfer: transfer,
	}
}
