package pdpool

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// checkEnv warns of variables that the engine does not look at any more, and of those
// whose value is a trap. Those that are the operator's are told by another rule.
func checkEnv(spec *v1alpha1.PDPoolSpec, r *Resolved) []kvlayout.Problem {
	out := deadIn("engine.env", spec.Engine.Env, r)
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		in := r.Side(role).inTemplate
		out = append(out, deadIn(string(role)+".env", roleSpec(spec, role).Env, r)...)
		out = append(out, deadIn(string(role)+".template."+in.path+".env", in.env, r)...)
	}
	return out
}

func deadIn(path string, env []corev1.EnvVar, r *Resolved) []kvlayout.Problem {
	list := make([]engine.EnvVar, 0, len(env))
	for _, e := range env {
		list = append(list, engine.EnvVar{Name: e.Name, Value: e.Value})
	}
	var out []kvlayout.Problem
	for _, p := range engine.CheckEnv(r.Engine, r.Version, list) {
		if len(engine.Owned(r.Engine, nil, []string{p.Name})) > 0 {
			continue
		}
		out = append(out, kvlayout.Problem{
			Rule: "args-env-dead", Severity: kvlayout.Warn, Field: fmt.Sprintf("%s[%d]", path, p.Index),
			Message: "the variable " + p.Name + ": " + p.Text, Reason: reasonEnv, Fix: p.Fix,
		})
	}
	return out
}

// checkPartition warns of devices of two kinds at once. It refuses none: the label may
// be of before the nodes were partitioned.
func checkPartition(spec *v1alpha1.PDPoolSpec) []kvlayout.Problem {
	of, ok := strings.CutPrefix(spec.GPU.ResourceName, "amd.com/")
	if want := spec.GPU.Partition; !ok || want == "" || of == "gpu" || of == want || !amdGPU.MatchString(spec.GPU.ResourceName) {
		return nil
	}
	return []kvlayout.Problem{{
		Rule: "gpu-partition", Severity: kvlayout.Warn, Field: "gpu.partition",
		Message: fmt.Sprintf("gpu.partition is %s, and gpu.resourceName %s", spec.GPU.Partition, spec.GPU.ResourceName),
		Reason:  reasonPartition, Fix: fmt.Sprintf("set gpu.partition to %s, or remove it", of),
	}}
}
