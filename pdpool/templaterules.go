package pdpool

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// decoderVersion is the Kubernetes version whose pods the decoder knows.
const decoderVersion = "1.37"

func checkTemplates(spec *v1alpha1.PDPoolSpec, r *Resolved) []kvlayout.Problem {
	var out []kvlayout.Problem
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		if t := roleSpec(spec, role).Template; t != nil {
			out = append(out, checkTemplate(t.Raw, role, r.GPUResource)...)
		}
	}
	return out
}

func checkTemplate(raw []byte, role kvlayout.Role, gpu string) []kvlayout.Problem {
	if len(raw) == 0 {
		return nil
	}
	c := templateCheck{root: string(role) + ".template", role: role, gpu: gpu}
	c.check(raw)
	return c.problems
}

// templateCheck looks for what a template may not hold.
type templateCheck struct {
	root     string
	role     kvlayout.Role
	gpu      string
	at       []string // steps from the root to what directives looks at
	problems []kvlayout.Problem
}

// full says that enough is found: an answer has no room for more.
func (c *templateCheck) full() bool { return len(c.problems) >= maxTold }

// owned adds a problem with what the operator keeps to itself.
func (c *templateCheck) owned(path, message, fix string) { c.wrong(path, message, reasonTemplate, fix) }

func (c *templateCheck) wrong(path, message, reason, fix string) {
	if c.full() {
		return
	}
	f := c.root
	if path != "" {
		f += "." + path
	}
	c.problems = append(c.problems, refuse("template-owned", f, message, reason, fix))
}

func (c *templateCheck) check(raw []byte) {
	const lost = "what can't be read would be dropped in silence"
	if len(raw) > maxTemplate {
		c.wrong("", fmt.Sprintf("the template has %d bytes, allowed are %d", len(raw), maxTemplate),
			"each revision of the pool keeps it, and the API server bounds what it keeps", "shorten it")
		return
	}
	if !json.Valid(raw) {
		c.wrong("", "the template is no object", lost, "write metadata and spec as in a pod")
		return
	}
	if beyond := beyondShape(raw); beyond != "" {
		c.wrong("", beyond, "it is merged with each pod, and what that takes has a bound", "shorten it")
		return
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		c.wrong("", "the template is no object", lost, "write metadata and spec as in a pod")
		return
	}
	var t corev1.PodTemplateSpec
	strict, err := kjson.UnmarshalStrict(raw, &t)
	if err != nil {
		c.wrong("", fmt.Sprintf("the template is no part of a pod: %v", err), lost, "write it as in a pod of Kubernetes "+decoderVersion)
		return
	}
	for _, e := range strict {
		if strings.Contains(e.Error(), ".$") {
			continue // a directive, told below
		}
		c.wrong("", fmt.Sprintf("the template has what a pod of Kubernetes %s has not: %v", decoderVersion, e), lost, "correct or remove it")
	}
	c.directives(tree)
	c.metadata(tree)
	spec, _ := tree["spec"].(map[string]any)
	c.fields("spec", spec, podFields)
	c.containers(spec, t.Spec)
	c.volumes(spec)
	if len(c.problems) > 0 {
		return
	}
	// Some templates are pods and yet can't be merged: elements of lists without
	// their key, for one.
	merged, err := mergeTemplate(skeleton(), raw)
	if err != nil {
		c.wrong("", fmt.Sprintf("the template can't be merged: %.200s", err), lost, "give each element of a list its name or other key")
		return
	}
	c.compare(skeleton(), merged)
}

// skeleton is a rendered pod as far as a merge looks at it, the lists with keys,
// and with a value wherever the operator has one of its own.
func skeleton() corev1.PodTemplateSpec {
	container := func(name string) corev1.Container {
		return corev1.Container{
			Name: name, Image: "image", Env: []corev1.EnvVar{{Name: "A"}}, Ports: []corev1.ContainerPort{port(enginePort, 1)},
			VolumeMounts: []corev1.VolumeMount{
				{Name: volumeShm, MountPath: pathShm},
				{Name: volumeDoor, MountPath: pathDoor},
				{Name: volumeShared, MountPath: pathShared},
				{Name: volumeKey, MountPath: pathKey},
			},
			StartupProbe: startup(1, "/", agentStartup), ReadinessProbe: probe(1, "/", probePeriod, 1), LivenessProbe: probe(1, "/", probePeriod, 1),
		}
	}
	engine, agent := container(v1alpha1.ContainerEngine), container(v1alpha1.ContainerAgent)
	engine.Command = []string{"engine"}
	engine.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: drain(1, "token")}}
	agent.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Subdomain: "members", EnableServiceLinks: new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers:                    []corev1.Container{engine}, InitContainers: []corev1.Container{agent},
			Affinity: sameHost("pool", "pairing"), Tolerations: tolerations(),
			Volumes: []corev1.Volume{{Name: volumeShm}, {Name: volumeDoor}, {Name: volumeShared}, {Name: volumeKey}},
		},
	}
}

// podFields are fields of a pod that are not the user's, with the reason or the
// field to use.
var podFields = map[string]string{
	"restartPolicy":                 "remove it: a replica is recreated as a whole",
	"hostname":                      "remove it: it is the pod's name",
	"hostnameOverride":              "remove it: the host name is the pod's name",
	"subdomain":                     "remove it: it is the Service of the pool's members",
	"nodeName":                      "use nodeSelector or affinity",
	"schedulingGroup":               "remove it: the operator decides what is scheduled together",
	"hostNetwork":                   "remove it: this version runs on the pod network",
	"terminationGracePeriodSeconds": "use transfer.drainTimeoutSeconds",
	"enableServiceLinks":            "remove it: a Service named vllm would set VLLM_PORT",
}

// fields refuses keys of a map.
func (c *templateCheck) fields(path string, m map[string]any, owned map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if fix, ok := owned[key]; ok {
			c.owned(path+"."+key, "the template sets "+path+"."+key, fix)
		}
	}
}

// directives refuses what would make the merge remove things. A path is put together
// only where something is wrong: there are many, and each may be long.
func (c *templateCheck) directives(v any) {
	depth := len(c.at)
	defer func() { c.at = c.at[:depth] }()
	null := func() {
		path := strings.Join(c.at, "")
		c.wrong(path, "the template sets "+path+" to null", reasonMerge, "remove the line or give it a value")
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			step := key
			if depth > 0 {
				step = "." + key
			}
			switch c.at = append(c.at[:depth], step); {
			case c.full():
				return
			case strings.HasPrefix(key, "$"):
				c.wrong(strings.Join(c.at, ""), "the template holds the merge directive "+clip(key, maxSpelled), reasonMerge, "remove it")
			case v[key] == nil:
				null()
			default:
				c.directives(v[key])
			}
		}
	case []any:
		for i, e := range v {
			switch c.at = append(c.at[:depth], fmt.Sprintf("[%d]", i)); {
			case c.full():
				return
			case e == nil:
				null()
			default:
				c.directives(e)
			}
		}
	}
}

func (c *templateCheck) metadata(tree map[string]any) {
	meta, _ := tree["metadata"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if key != "labels" && key != "annotations" {
			c.owned("metadata."+key, "the template sets metadata."+key, "remove it: only labels and annotations are the user's")
			continue
		}
		names, _ := meta[key].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if ownedLabel(name) {
				c.owned("metadata."+key, fmt.Sprintf("the template sets %s %s", strings.TrimSuffix(key, "s"), name), "remove it: the operator finds pods by it")
			}
		}
	}
}

// Fields of our containers that are not the user's.
var (
	agentFields = map[string]string{
		"command":        "remove it: the agent's image has its own",
		"args":           "remove it: the agent is configured by fields of transfer",
		"ports":          "remove it: the operator chooses the ports of a pod",
		"startupProbe":   "remove it: the order of start depends on it",
		"readinessProbe": "remove it: requests are routed by it",
		"livenessProbe":  "remove it: it would cut live transfers",
		"restartPolicy":  "remove it: the agent runs beside the engine",
		"lifecycle":      "remove it: the agent ends after the engine",
	}
	engineFields = map[string]string{
		"command":   "use args",
		"image":     "use image of the role, or engine.image",
		"lifecycle": "remove it: a pod drains its transfers before it stops",
	}
)

func (c *templateCheck) containers(tree map[string]any, spec corev1.PodSpec) {
	list := func(name string, of []corev1.Container, ours string, owned map[string]string) {
		raw := elements(tree[name])
		seen := map[string]bool{}
		for i := range of {
			at := fmt.Sprintf("spec.%s[%d]", name, i)
			if seen[of[i].Name] {
				c.wrong(at+".name", fmt.Sprintf("the template has two containers %q", clip(of[i].Name, maxSpelled)), "only one of them would be merged as it is written", "write it once")
			}
			seen[of[i].Name] = true
			if i < len(raw) {
				c.container(at, &of[i], raw[i], ours, owned)
			}
		}
	}
	list("initContainers", spec.InitContainers, v1alpha1.ContainerAgent, agentFields)
	list("containers", spec.Containers, v1alpha1.ContainerEngine, engineFields)
}

// container checks one container; ours is the one of that list that the operator
// renders. What is there counts as written, since an empty value replaces as well.
func (c *templateCheck) container(path string, k *corev1.Container, raw map[string]any, ours string, owned map[string]string) {
	switch k.Name {
	case ours:
		c.fields(path, raw, owned)
		c.mounts(path, k.VolumeMounts)
	case v1alpha1.ContainerAgent, v1alpha1.ContainerEngine:
		c.owned(path+".name", fmt.Sprintf("%s is named %s", path, k.Name), "the engine is in containers, the agent in initContainers: choose another name or move it")
	}
	switch k.Name {
	case v1alpha1.ContainerEngine:
		c.ports(path, k.Ports)
	case v1alpha1.ContainerAgent:
		c.agent(path, k, raw)
	}
	for i, m := range k.VolumeMounts {
		if m.Name == volumeKey {
			c.owned(fmt.Sprintf("%s.volumeMounts[%d].name", path, i), "the template mounts the volume "+volumeKey, "remove it: the pool's secret is the agent's alone")
		}
	}
	if c.full() {
		return
	}
	c.problems = append(c.problems, gpusIn(c.root+"."+path+".resources", k.Resources, c.gpu, string(c.role)+".layout")...)
}

func (c *templateCheck) agent(path string, k *corev1.Container, raw map[string]any) {
	if image, set := raw["image"]; set && image == "" {
		c.owned(path+".image", "the template sets the image of the agent to nothing", "remove the line or give it a value")
	}
	for i, e := range k.Env {
		if strings.HasPrefix(e.Name, "PDPOOL_") {
			c.owned(fmt.Sprintf("%s.env[%d]", path, i), "the template sets "+e.Name+" of the agent", "remove it: it is configured by fields of transfer")
		}
	}
}

func (c *templateCheck) volumes(spec map[string]any) {
	for i, v := range elements(spec["volumes"]) {
		at := fmt.Sprintf("spec.volumes[%d]", i)
		switch name := v["name"]; name {
		case volumeDoor, volumeShared, volumeKey:
			c.owned(at, fmt.Sprintf("the template has a volume named %s", name), "choose another name")
		case volumeShm:
			c.shm(at, v)
		}
	}
}

// checkGPUs holds that devices come from the layout alone.
func checkGPUs(spec *v1alpha1.PDPoolSpec, r *Resolved) []kvlayout.Problem {
	var out []kvlayout.Problem
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		out = append(out, gpusIn(string(role)+".resources", roleSpec(spec, role).Resources, r.GPUResource, string(role)+".layout")...)
	}
	if res := spec.Transfer.Resources; res != nil {
		out = append(out, gpusIn("transfer.resources", *res, r.GPUResource, "prefill.layout and decode.layout")...)
	}
	return out
}

// maxResources bounds the kinds of resources that a container asks for.
const maxResources = 64

// amdGPU matches the names that AMD's device plugin has for whole and partitioned devices.
var amdGPU = regexp.MustCompile(`^amd\.com/(gpu|[a-z]+_nps[0-9]+)$`)

func gpusIn(path string, res corev1.ResourceRequirements, gpu, layout string) []kvlayout.Problem {
	var out []kvlayout.Problem
	look := func(kind string, list corev1.ResourceList) {
		if len(list) > maxResources {
			out = append(out, refuse("gpus-resources", path+"."+kind, fmt.Sprintf("%s.%s has %d resources, allowed are %d", path, kind, len(list), maxResources),
				"no node has so many", "remove those that no node has"))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if string(name) != gpu && !amdGPU.MatchString(string(name)) {
				continue
			}
			n := list[name]
			out = append(out, refuse("gpus-resources", path+"."+kind,
				fmt.Sprintf("%s.%s asks for %s %s", path, kind, n.String(), clip(string(name), maxSpelled)), reasonGPUs,
				fmt.Sprintf("remove it and use %s, and gpu.resourceName for the kind of device", layout)))
		}
	}
	look("limits", res.Limits)
	look("requests", res.Requests)
	return out
}
