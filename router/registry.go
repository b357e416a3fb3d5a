package router

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Registry holds what all sources say of the instances. Readers see one immutable
// snapshot at a time.
type Registry struct {
	current  atomic.Pointer[snapshot]
	verdicts verdicts

	mu      sync.Mutex
	sources []*Source
	loads   map[rankKey]*load
	vitals  map[string]*vitals // by address
	changed []func()
}

// rankKey names a rank across snapshots. A pod that comes back under the address of
// another is another instance to Kubernetes, but the same process to count for.
type rankKey struct {
	address string
	rank    int
}

// NewRegistry returns a registry without sources.
func NewRegistry() *Registry {
	r := &Registry{loads: map[rankKey]*load{}}
	r.current.Store(newSnapshot(nil, nil, &r.verdicts))
	return r
}

// Source is one origin of instances.
type Source struct {
	registry *Registry
	name     string
	overlay  bool

	instances []Instance // guarded by registry.mu, as is synced
	synced    bool
}

// Source adds a source. A pod that several sources know belongs to the source that
// was added first; a later one adds to it what it knows better (see Overlay).
func (r *Registry) Source(name string) *Source { return r.add(name, false) }

// Overlay adds a source that is believed only about instances that another source
// knows: that one is draining, and in which mode it runs.
func (r *Registry) Overlay(name string) *Source { return r.add(name, true) }

func (r *Registry) add(name string, overlay bool) *Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Source{registry: r, name: name, overlay: overlay}
	r.sources = append(r.sources, s)
	return s
}

// Publish replaces all that the source says. Instances that are not ready belong to
// it too: what a source knows to be starting or ending, no other can make routable.
func (s *Source) Publish(instances []Instance) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	s.instances, s.synced = slices.Clone(instances), true
	r.rebuild()
}

// Knows says whether it counts what the source says of an instance: an overlay's only
// where another source knows one of its pods.
func (s *Source) Knows(i *Instance) bool {
	if !s.overlay {
		return true
	}
	return slices.ContainsFunc(s.registry.current.Load().instances, func(known *Instance) bool {
		return slices.ContainsFunc(known.Pods, func(a Pod) bool {
			return slices.ContainsFunc(i.Pods, func(b Pod) bool { return a.address() == b.address() })
		})
	})
}

// Waiting names the sources that have not published yet.
func (r *Registry) Waiting() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, s := range r.sources {
		if !s.synced {
			names = append(names, s.name)
		}
	}
	return names
}

// rebuild makes the snapshot anew. The caller holds mu.
func (r *Registry) rebuild() {
	loads, seen := map[rankKey]*load{}, map[string]*vitals{}
	loadOf := func(pod *Pod, rank int) *load {
		key := rankKey{pod.address(), rank}
		if seen[key.address] == nil {
			if seen[key.address] = r.vitals[key.address]; seen[key.address] == nil {
				seen[key.address] = new(vitals)
			}
		}
		if loads[key] == nil {
			if loads[key] = r.loads[key]; loads[key] == nil {
				loads[key] = &load{vitals: seen[key.address]}
			}
		}
		return loads[key]
	}
	s := newSnapshot(r.merge(), loadOf, &r.verdicts)
	// Legs go on while their instance is not ready or not known.
	for key, l := range r.loads {
		if loads[key] == nil && l.open.Load() > 0 {
			loads[key], seen[key.address] = l, l.vitals
		}
	}
	r.loads, r.vitals = loads, seen
	r.current.Store(s)
	for _, f := range r.changed {
		f()
	}
}

// whenChanged makes f be called after each change of the snapshot. It must not change it.
func (r *Registry) whenChanged(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, f)
}

// merge joins what the sources say, by the addresses of pods.
func (r *Registry) merge() []*Instance {
	var all []*Instance
	owner := map[string]*Instance{}
	for _, s := range r.sources {
		var own []*Instance
		for k := range s.instances {
			said := s.instances[k].clone()
			switch known := ownerOf(owner, said); {
			case known != nil:
				known.Draining = known.Draining || said.Draining
				known.Mode = cmp.Or(said.Mode, known.Mode)
			case !s.overlay:
				own = append(own, said)
			}
		}
		// Two instances of one source are two, whatever their addresses.
		for _, i := range own {
			for p := range i.Pods {
				if i.Pods[p].Host != "" {
					owner[i.Pods[p].address()] = i
				}
			}
		}
		all = append(all, own...)
	}
	return all
}

// ownerOf is the instance of an earlier source that has one of the pods.
func ownerOf(owner map[string]*Instance, said *Instance) *Instance {
	for p := range said.Pods {
		if known := owner[said.Pods[p].address()]; known != nil {
			return known
		}
	}
	return nil
}
