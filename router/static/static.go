// Package static reads instances from a file, for use without Kubernetes and for
// tests.
package static

import (
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/router"
)

// maxBytes bounds the file.
const maxBytes = 4 << 20

// Read reads a file with a list of router.Instance in YAML or JSON. Unset, engine is
// Simulator, mover Agent for the simulator and Engine else, mode Write, and ready
// true. An unknown field is an error.
func Read(path string) ([]router.Instance, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the instances: %w", err)
	}
	if info.Size() > maxBytes {
		return nil, fmt.Errorf("file %s has %d bytes, the limit is %d", path, info.Size(), maxBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the instances: %w", err)
	}
	instances, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	return instances, nil
}

// entry is an instance as the file writes it.
type entry struct {
	router.Instance `json:",inline"`
	Ready           *bool `json:"ready"`
}

// Parse reads what Read reads.
func Parse(text []byte) ([]router.Instance, error) {
	var entries []entry
	if err := yaml.UnmarshalStrict(text, &entries); err != nil {
		return nil, err
	}
	instances := make([]router.Instance, 0, len(entries))
	for n, e := range entries {
		i := e.Instance
		i.Ready = e.Ready == nil || *e.Ready
		setDefaults(&i)
		if err := check(&i); err != nil {
			return nil, fmt.Errorf("instance %d: %w", n, err)
		}
		instances = append(instances, i)
	}
	return instances, nil
}

func setDefaults(i *router.Instance) {
	if i.Engine == "" {
		i.Engine = kvlayout.Simulator
	}
	if i.Mover == "" {
		i.Mover = kvlayout.MoverEngine
		if i.Engine == kvlayout.Simulator {
			i.Mover = kvlayout.MoverAgent
		}
	}
	if i.Mode == "" {
		i.Mode = kvlayout.Write
	}
	if i.KV == (kvlayout.Geometry{}) {
		i.KV, _ = kvlayout.Lookup(i.Model)
	}
}

func check(i *router.Instance) error {
	if i.Role != kvlayout.Prefill && i.Role != kvlayout.Decode {
		return fmt.Errorf("role is %q, allowed are %s and %s", i.Role, kvlayout.Prefill, kvlayout.Decode)
	}
	if i.Mover != kvlayout.MoverAgent && i.Mover != kvlayout.MoverEngine {
		return fmt.Errorf("mover is %q, allowed are %s and %s", i.Mover, kvlayout.MoverAgent, kvlayout.MoverEngine)
	}
	if i.Layout.TP < 1 {
		return fmt.Errorf("layout.tp is %d, it must be at least 1", i.Layout.TP)
	}
	if len(i.Pods) == 0 {
		return errors.New("pods is empty")
	}
	for n, p := range i.Pods {
		if p.Host == "" {
			return fmt.Errorf("pods[%d].host is empty", n)
		}
		for _, port := range []struct {
			name       string
			value, low int
		}{{"http", p.HTTP, 1}, {"agent", p.Agent, 0}, {"handshake", p.Handshake, 1}, {"notify", p.Notify, 1}} {
			if port.value < port.low || port.value > 65535 {
				return fmt.Errorf("pods[%d].%s is %d, allowed are %d to 65535", n, port.name, port.value, port.low)
			}
		}
	}
	return nil
}
