package pdpool

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// hashVersion is part of every hash. It changes only when the meaning of an
// existing input does, since that replaces every pod of every pool. A new input
// needs no new version: unset, it is left out.
const hashVersion = 1

// pairingInputs is all that two instances must agree on to exchange KV cache.
// Layouts are not among it: they may differ, and kvlayout decides which may.
type pairingInputs struct {
	Version  int                   `json:"v"`
	Engine   kvlayout.Engine       `json:"engine"`
	Class    string                `json:"class,omitempty"`
	Model    string                `json:"model"`
	Geometry v1alpha1.GeometrySpec `json:"geometry,omitzero"`
	KVTypes  [2]kvlayout.KVType    `json:"kvTypes"`
	Blocks   [2]int                `json:"blocks"`
	Mode     kvlayout.Mode         `json:"mode"`
	Mover    kvlayout.Mover        `json:"mover"`
	Backend  agentconfig.Backend   `json:"backend"`
}

// agreement is what the instances of a resolved pool agree on.
func (r *Resolved) agreement(spec *v1alpha1.PDPoolSpec) pairingInputs {
	return pairingInputs{
		Version: hashVersion, Engine: r.Engine, Class: r.engineClass(), Model: r.Model, Geometry: spec.Model.Geometry,
		KVTypes: [2]kvlayout.KVType{r.Prefill.KVType, r.Decode.KVType},
		Blocks:  [2]int{r.Prefill.BlockSize, r.Decode.BlockSize},
		Mode:    r.Mode, Mover: r.Mover, Backend: r.Backend,
	}
}

// engineClass tells engines apart that don't understand each other on the wire:
// MoRIIO counts its writers, and may name a failed one, from vLLM 0.33.0 on. With
// the agent as mover engines don't speak to each other.
func (r *Resolved) engineClass() string {
	if r.Mover == kvlayout.MoverAgent {
		return ""
	}
	switch kvlayout.Supports(r.Version, kvlayout.FeatureWriteFailed) {
	case kvlayout.Has:
		return "0.33"
	case kvlayout.Lacks:
		return "before-0.33"
	case kvlayout.Unknown:
	}
	return "unknown"
}

// roleInputs is all of a user's wishes that make a pod of a role what it is.
// Replicas are not among it, nor is any setting of the operator.
type roleInputs struct {
	Version     int                         `json:"v"`
	Role        kvlayout.Role               `json:"role"`
	Pairing     string                      `json:"pairing"`
	Served      string                      `json:"served"`
	Layout      kvlayout.Layout             `json:"layout"`
	MaxLength   int                         `json:"maxLength,omitempty"`
	KVMemory    int64                       `json:"kvMemory,omitempty"`
	GPUResource string                      `json:"gpuResource"`
	DeviceIDs   []string                    `json:"deviceIDs,omitempty"`
	Partition   string                      `json:"partition,omitempty"`
	Timeouts    agentconfig.Timeouts        `json:"timeouts"`
	Image       string                      `json:"image,omitempty"`
	Args        []string                    `json:"args,omitempty"`
	Env         []corev1.EnvVar             `json:"env,omitempty"`
	Resources   corev1.ResourceRequirements `json:"resources,omitzero"`
	// Template is canonical JSON as text: in it a zero is a wish like any other.
	Template string `json:"template,omitempty"`
	// AgentResources are the user's; the default ones are the operator's setting.
	AgentResources *corev1.ResourceRequirements `json:"agentResources,omitempty"`
}

// roleRevision is the hash of what a user wants of the pods of one role.
func (r *Resolved) roleRevision(spec *v1alpha1.PDPoolSpec, role kvlayout.Role) string {
	s := r.Side(role)
	return hash(8, roleInputs{
		Version: hashVersion, Role: role, Pairing: r.pairing, Served: r.Served, Layout: s.Layout,
		MaxLength: s.MaxLength, KVMemory: r.KVMemory, GPUResource: r.GPUResource, Timeouts: r.Timeouts,
		Image: cmp.Or(roleSpec(spec, role).Image, spec.Engine.Image),
		Args:  s.Args, Env: s.Env, Resources: s.Resources, Template: canonical(s.Template),
		AgentResources: spec.Transfer.Resources,
		DeviceIDs:      slices.Sorted(slices.Values(spec.GPU.DeviceIDs)), Partition: spec.GPU.Partition,
	})
}

// routerInputs is all of a user's wishes that make a router pod what it is.
type routerInputs struct {
	Version   int                          `json:"v"`
	Image     string                       `json:"image,omitempty"`
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Unheard says that no engine registers with it.
	Unheard bool `json:"unheard,omitempty"`
}

// routerRevision is the hash of what a user wants of the router's pods.
func (r *Resolved) routerRevision(s v1alpha1.RouterSpec) string {
	return hash(8, routerInputs{Version: hashVersion, Image: s.Image, Resources: s.Resources, Unheard: !r.Router.Registrations})
}

// hash is the first n characters of a hash over the JSON of v, in an alphabet fit
// for names. Keys are sorted and zero values left out at every depth, so that
// neither a library that begins to write an empty field nor the spelling of a
// template changes it.
func hash(n int, v any) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	sum := sha256.Sum256(encode(withoutZeros(decode(encode(v)))))
	out := make([]byte, n)
	for i := range out {
		out[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(out)
}

// canonical is JSON with sorted keys and no space.
func canonical(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return string(encode(decode(data)))
}

// encode and decode are for what is known to be JSON.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("encode a hash input: " + err.Error())
	}
	return data
}

func decode(data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic("decode a hash input: " + err.Error())
	}
	return v
}

// withoutZeros drops null, "", 0, false, and what is empty then. Elements of lists
// stay, since their place counts.
func withoutZeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value = withoutZeros(value); value == nil {
				delete(v, key)
			} else {
				v[key] = value
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = withoutZeros(v[i])
		}
	case string:
		if v == "" {
			return nil
		}
	case json.Number:
		if v == "0" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}
