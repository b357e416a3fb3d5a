package cli

import (
	"slices"
	"strings"

	"github.com/pdpool/pdpool/engine"
)

// userArgs is what of a command line stays the user's.
type userArgs struct {
	args []string
	env  []engine.EnvVar
}

// deviceEnv chooses GPUs, which a container gets from its pod.
var deviceEnv = []string{"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}

// arguments leaves out what the operator renders, and remarks on what of that no
// field of a pool stands for.
func (m *importer) arguments(s startedSide) userArgs {
	var out userArgs
	names := make([]string, 0, len(s.launch.Env))
	for _, e := range s.launch.Env {
		names = append(names, e.Name)
	}
	ours := map[int]bool{}
	oursEnv := map[int]bool{}
	for _, o := range engine.Owned(s.Engine, s.launch.Args, names) {
		fix := o.Fix(s.role)
		if why, ok := strings.CutPrefix(fix, "remove it: "); ok {
			m.remark("%s %s is left out: %s", s.role, o.Spelled, why)
		}
		if o.Env {
			oursEnv[o.Index] = true
		} else {
			ours[o.Index] = true
		}
	}
	out.args = kept(s, ours)
	for i, e := range s.launch.Env {
		switch {
		case oursEnv[i]:
		case slices.Contains(deviceEnv, e.Name):
			m.remark("%s %s is left out: a pod gets its GPUs from the cluster", s.role, e.Name)
		default:
			out.env = append(out.env, e)
		}
	}
	return out
}

// kept are the arguments of flags that are not the operator's, each with its values.
func kept(s startedSide, ours map[int]bool) []string {
	flags, _ := engine.ParseArgsOf(s.Engine, s.launch.Args)
	begins := slices.Clone(flags.PositionalAt)
	for _, f := range flags.List {
		begins = append(begins, f.Index)
	}
	slices.Sort(begins)
	var out []string
	for _, f := range flags.List {
		if ours[f.Index] {
			continue
		}
		end := len(s.launch.Args)
		if i, ok := slices.BinarySearch(begins, f.Index+1); i < len(begins) {
			end = begins[i]
		} else if ok {
			end = f.Index + 1
		}
		out = append(out, s.launch.Args[f.Index:end]...)
	}
	return out
}

// sharedPrefix is a list that both sides have, or nothing.
func sharedPrefix(a, b []string) []string {
	if slices.Equal(a, b) {
		return a
	}
	return nil
}

// sharedEnv are the variables that both sides set to the same.
func sharedEnv(a, b []engine.EnvVar) []engine.EnvVar {
	var out []engine.EnvVar
	for _, e := range a {
		if slices.Contains(b, e) {
			out = append(out, e)
		}
	}
	return out
}

// without takes away what stands for both roles.
func (u userArgs) without(args []string, env []engine.EnvVar) userArgs {
	if args != nil {
		u.args = nil
	}
	u.env = slices.DeleteFunc(slices.Clone(u.env), func(e engine.EnvVar) bool { return slices.Contains(env, e) })
	return u
}
