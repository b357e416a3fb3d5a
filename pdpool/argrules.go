package pdpool

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// checkArgs holds that a user's arguments and variables are the user's to set, and that
// each argument is one word.
func checkArgs(spec *v1alpha1.PDPoolSpec, r *Resolved) []kvlayout.Problem {
	var out []kvlayout.Problem
	look := func(path string, args []string, env []corev1.EnvVar, role kvlayout.Role) {
		owned := ownedIn(r.Engine, path, args, env, role)
		out = append(out, owned...)
		for _, p := range wordsIn(path+".args", args) {
			// What is to be removed need not be cut in two before.
			if !slices.ContainsFunc(owned, func(o kvlayout.Problem) bool { return o.Field == p.Field }) {
				out = append(out, p)
			}
		}
	}
	look("engine", spec.Engine.Args, spec.Engine.Env, "")
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		rs, in := roleSpec(spec, role), r.Side(role).inTemplate
		look(string(role), rs.Args, rs.Env, role)
		look(string(role)+".template."+in.path, in.args, in.env, role)
	}
	return out
}

func ownedIn(kind kvlayout.Engine, path string, args []string, env []corev1.EnvVar, role kvlayout.Role) []kvlayout.Problem {
	names := make([]string, 0, len(env))
	for _, e := range env {
		names = append(names, e.Name)
	}
	var out []kvlayout.Problem
	for _, o := range engine.Owned(kind, words(args), names) {
		list, what := "args", "the flag"
		if o.Env {
			list, what = "env", "the variable"
		}
		spelled := clip(o.Spelled, maxSpelled)
		message := fmt.Sprintf("%s %s is the operator's", what, spelled)
		if strings.TrimLeft(o.Spelled, "-") != o.Name {
			message = fmt.Sprintf("%s %s (%s) is the operator's", what, spelled, clip(o.Name, maxSpelled))
		}
		out = append(out, refuse("args-owned", fmt.Sprintf("%s.%s[%d]", path, list, o.Index), message, reasonArgs, o.Fix(role)))
	}
	return out
}

// wordsIn refuses a flag that shares an element with its value: no shell splits it, and
// the engine takes it for one word that is no flag.
func wordsIn(path string, args []string) []kvlayout.Problem {
	var out []kvlayout.Problem
	for i, arg := range args {
		at := valueWithin(arg)
		if at < 0 {
			continue
		}
		flag, value := clip(arg[:at], maxSpelled), clip(strings.TrimSpace(arg[at:]), maxSpelled)
		out = append(out, refuse("args-words", fmt.Sprintf("%s[%d]", path, i),
			fmt.Sprintf("the argument %q has a flag and its value in one element", clip(arg, maxSpelled)), reasonWords,
			fmt.Sprintf("write %q and %q as two elements, or %q", flag, value, flag+"="+value)))
	}
	return out
}

// valueWithin is where the name of a flag ends that has a blank and its value behind it,
// -1 in all other arguments.
func valueWithin(arg string) int {
	at := strings.IndexAny(arg, " \t\n=")
	if at < 0 || arg[at] == '=' || arg[0] != '-' || strings.TrimSpace(arg[at:]) == "" {
		return -1
	}
	return at
}

// words are arguments for a reader that repeats as a whole what it does not know: those
// that are no word, and names longer than those of all flags.
func words(args []string) []string {
	const longest = 256
	out := slices.Clone(args)
	for i, arg := range out {
		if at := valueWithin(arg); at >= 0 {
			out[i] = clip(arg, at+maxSpelled)
			continue
		}
		if name, value, inline := strings.Cut(arg, "="); len(name) > longest && name[0] == '-' {
			out[i] = name[:longest]
			if inline {
				out[i] += "=" + value
			}
		}
	}
	return out
}
