package agentconfig

import (
	"encoding/json"
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// maxAnnotation bounds what the router reads from one annotation, in bytes.
const maxAnnotation = 8 << 10

// Instance is what the router needs to know of an engine instance to pair it and
// to dispatch to it: the value of the annotation pdpool.dev/layout. It is the same
// on all pods of a replica but for DPStart and Pod.
type Instance struct {
	Layout  kvlayout.Layout   `json:"layout"`
	Block   int               `json:"blockSize"`
	KVType  kvlayout.KVType   `json:"kvType"`
	KV      kvlayout.Geometry `json:"geometry"`
	Engine  kvlayout.Engine   `json:"engine"`
	Version string            `json:"engineVersion,omitempty"` // of the engine; empty when not known
	Mover   kvlayout.Mover    `json:"mover"`
	Mode    kvlayout.Mode     `json:"mode"`
	Backend Backend           `json:"backend"`
	DPStart int               `json:"dpStart"` // first global data parallel rank of the pod
	Pods    int               `json:"pods"`    // of the replica
	Pod     int               `json:"pod"`     // index in the replica
	Model   string            `json:"model"`   // served name
}

// Instance returns the part of the configuration that the layout annotation repeats.
func (c *Config) Instance() Instance {
	return Instance{
		Layout: c.Layout, Block: c.Block, KVType: c.KVType, KV: c.KV,
		Engine: c.Engine, Version: c.EngineVersion, Mover: c.Mover, Mode: c.Mode, Backend: c.Backend,
		DPStart: c.DPStart, Pods: c.Pods, Pod: c.Pod, Model: c.Served,
	}
}

// Validate returns an *InvalidError with all that is wrong, nil when nothing is.
func (i Instance) Validate() error {
	var p problems
	oneOf(&p, "engine", i.Engine, kvlayout.VLLM, kvlayout.SGLang, kvlayout.Simulator)
	oneOf(&p, "mover", i.Mover, kvlayout.MoverAgent, kvlayout.MoverEngine)
	oneOf(&p, "mode", i.Mode, kvlayout.Write, kvlayout.Read)
	p.backend(i.Backend, i.Mover)
	p.version(i.Version)
	p.text("model", i.Model)
	p.place(i.Layout, i.DPStart, i.Pod, i.Pods)
	p.cache(i.Block, i.KVType, i.KV, i.Mover)
	return p.err()
}

// Encode returns the annotation's value.
func (i Instance) Encode() string { return encode(i) }

// ParseInstance reads and validates the layout annotation. Fields that a newer
// operator has added are ignored.
func ParseInstance(s string) (Instance, error) {
	var i Instance
	if err := parseAnnotation(s, &i); err != nil {
		return Instance{}, fmt.Errorf("layout annotation: %w", err)
	}
	if err := i.Validate(); err != nil {
		return Instance{}, fmt.Errorf("layout annotation: %w", err)
	}
	return i, nil
}

// Encode returns the value of the annotation pdpool.dev/ports.
func (p Ports) Encode() string { return encode(p) }

// ParsePorts reads the ports annotation: each port is 0 or a TCP port, and the
// engine's HTTP port is there. Fields that a newer operator has added are ignored.
func ParsePorts(s string) (Ports, error) {
	var ports Ports
	if err := parseAnnotation(s, &ports); err != nil {
		return Ports{}, fmt.Errorf("ports annotation: %w", err)
	}
	var p problems
	p.number("http", ports.HTTP, 1, maxPort)
	for _, r := range (&Config{Ports: ports}).ranges()[1:] {
		p.number(r.name, r.first, 0, maxPort)
	}
	if err := p.err(); err != nil {
		return Ports{}, fmt.Errorf("ports annotation: %w", err)
	}
	return ports, nil
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		// Both structs hold only numbers, booleans and strings.
		panic(err)
	}
	return string(b)
}

func parseAnnotation(s string, v any) error {
	if len(s) > maxAnnotation {
		return fmt.Errorf("has %d bytes, the limit is %d", len(s), maxAnnotation)
	}
	return decode([]byte(s), v, false)
}
