package pdpool

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// Bounds of one review: what it may take and what it may answer, in bytes.
const (
	maxReview = 16 << 20
	maxAnswer = 128 << 10
)

// wideTemplates are templates that hold as much as they may of what is wrong or costs.
func wideTemplates() map[string]string {
	list := func(n int, element func(i int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = element(i)
		}
		return strings.Join(parts, ",")
	}
	named := func(format string) func(int) string { return func(i int) string { return fmt.Sprintf(format, i) } }
	same := func(text string) func(int) string { return func(int) string { return text } }
	containers := func(n int, element func(int) string) string {
		return `{"spec":{"containers":[` + list(n, element) + `]}}`
	}
	engine := func(fields string) string { return `{"spec":{"containers":[{"name":"engine",` + fields + `}]}}` }
	long := strings.Repeat("k", 30_000)
	return map[string]string{
		"nulls under a long key":    `{"` + long + `":{` + list(2500, named(`"%d":null`)) + `}}`,
		"nulls in a list":           `{"` + long + `":[` + list(6000, same(`null`)) + `]}`,
		"nulls in each other":       strings.Repeat(`{"a":null,"b":`, 4000) + `1` + strings.Repeat(`}`, 4000),
		"nulls under keys":          strings.Repeat(`{"`+strings.Repeat("k", 500)+`":`, 30) + `{` + list(3900, named(`"%d":null`)) + `}` + strings.Repeat(`}`, 30),
		"directives":                `{` + list(4000, named(`"$%d":1`)) + `}`,
		"unknown fields":            `{` + list(4000, named(`"f%d":1`)) + `}`,
		"depth":                     `{"a":` + strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000) + `}`,
		"arguments of the operator": engine(`"args":[` + list(10_000, same(`"-tp"`)) + `]`),
		"variables of the operator": engine(`"env":[` + list(2500, named(`{"name":"PDPOOL_%d"}`)) + `]`),
		"few arguments":             engine(`"args":[` + list(128, same(`"-tp"`)) + `]`),
		"few variables":             engine(`"env":[` + list(128, named(`{"name":"PDPOOL_%d"}`)) + `]`),
		"one container many times":  containers(3500, same(`{"name":"engine"}`)),
		"one container a few times": containers(128, same(`{"name":"engine"}`)),
		"containers":                containers(2500, named(`{"name":"c%d"}`)),
		"few containers":            containers(128, named(`{"name":"c%d","image":"x","env":[{"name":"A"}]}`)),
		"volumes":                   `{"spec":{"volumes":[` + list(2500, named(`{"name":"v%d"}`)) + `]}}`,
		"few volumes":               `{"spec":{"volumes":[` + list(128, named(`{"name":"v%d"}`)) + `]}}`,
		"containers with variables": containers(24, func(i int) string {
			return fmt.Sprintf(`{"name":"c%d","image":"x","env":[%s]}`, i, list(78, named(`{"name":"E%d"}`)))
		}),
		"mounts of the key":          engine(`"volumeMounts":[` + list(128, named(`{"name":"pool-key","mountPath":"/%d"}`)) + `]`),
		"GPUs":                       engine(`"resources":{"limits":{` + list(2000, func(i int) string { return fmt.Sprintf(`"amd.com/%s_nps1":"1"`, letters(i)) }) + `}}`),
		"empty lists":                `{"spec":{"x":[` + list(4000, same(`[]`)) + `]}}`,
		"a quantity of a long scale": engine(`"resources":{"limits":{"cpu":"1e-99999999"}}`),
		"a number of a long scale":   engine(`"resources":{"requests":{"cpu":1e-99999999}}`),
		"a size of a long scale":     `{"spec":{"volumes":[{"name":"shm","emptyDir":{"sizeLimit":"1E-99999999"}}]}}`,
	}
}

// letters spells a number in lower-case letters.
func letters(n int) string {
	out := []byte{byte('a' + n%26)}
	for n /= 26; n > 0; n /= 26 {
		out = append(out, byte('a'+n%26))
	}
	return string(out)
}

// widePools are manifests that the schema admits, and that cost or break as much as can be.
func widePools(t *testing.T) map[string]*v1alpha1.PDPool {
	t.Helper()
	out := map[string]*v1alpha1.PDPool{}
	for name, template := range wideTemplates() {
		out["template: "+name] = simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
			s.Prefill.Template = &kruntime.RawExtension{Raw: []byte(template)}
			s.Decode.Template = &kruntime.RawExtension{Raw: []byte(template)}
		}))
	}
	args := func(arg string) []string {
		list := make([]string, 128)
		for i := range list {
			list[i] = arg[:min(len(arg), 4096)]
		}
		return list
	}
	for name, arg := range map[string]string{
		"short":   "-tp",
		"long":    "--kv_transfer_config." + strings.Repeat("k", 4000) + "=1",
		"JSON":    "--kv-transfer-config={" + strings.Repeat(`"a":{`, 300) + `"b":1` + strings.Repeat("}", 301),
		"blanks":  "-tp " + strings.Repeat("x ", 2000),
		"unknown": "--" + strings.Repeat("u", 4090),
	} {
		everywhere := spec(func(s *v1alpha1.PDPoolSpec) {
			s.Engine.Args, s.Prefill.Args, s.Decode.Args = args(arg), args(arg), args(arg)
			for i := range 128 {
				e := corev1.EnvVar{Name: fmt.Sprintf("PDPOOL_%d%s", i, strings.Repeat("N", 1000))}
				s.Engine.Env, s.Prefill.Env, s.Decode.Env = append(s.Engine.Env, e), append(s.Prefill.Env, e), append(s.Decode.Env, e)
			}
		})
		out["arguments of the Simulator: "+name] = simulatorPool(t, everywhere)
		out["arguments of vLLM: "+name] = vllmPool(t, everywhere)
	}
	out["resources"] = simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
		list := corev1.ResourceList{}
		for i := range 20_000 {
			list[corev1.ResourceName("amd.com/"+letters(i)+"_nps1")] = resource.MustParse("1")
		}
		s.Prefill.Resources.Limits, s.Decode.Resources.Requests = list, list
	}))
	return out
}

// TestReviewsAreBounded holds that no manifest makes a review take much memory or
// answer at length, whether it is created or takes the place of another.
func TestReviewsAreBounded(t *testing.T) {
	for name, pool := range widePools(t) {
		t.Run(name, func(t *testing.T) {
			for _, old := range []*v1alpha1.PDPool{nil, simulatorPool(t), pool} {
				if old == pool {
					pool = pool.DeepCopy()
					pool.Spec.Model.MaxLength++ // else nothing is looked for
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				refusals, warnings := Validate(old, pool)
				status := apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(v1alpha1.PDPoolKind).GroupKind(), pool.Name, FieldErrors(pool, refusals))
				answer := len(status.Error())
				for _, w := range Sentences(warnings) {
					answer += len(w)
				}
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; took > maxReview {
					t.Errorf("it took %d KiB", took>>10)
				}
				if answer > maxAnswer || len(refusals) > maxTold || len(warnings) > maxTold {
					t.Errorf("%d refusals and %d warnings in %d bytes", len(refusals), len(warnings), answer)
				}
				t.Logf("%d KiB, %d refusals, %d warnings, %d bytes", (after.TotalAlloc-before.TotalAlloc)>>10, len(refusals), len(warnings), answer)
			}
		})
	}
}

// BenchmarkWidest is the webhook's work for manifests that cost the most.
func BenchmarkWidest(b *testing.B) {
	for name, template := range wideTemplates() {
		pool := simulatorPool(b, spec(func(s *v1alpha1.PDPoolSpec) {
			s.Prefill.Template = &kruntime.RawExtension{Raw: []byte(template)}
			s.Decode.Template = &kruntime.RawExtension{Raw: []byte(template)}
		}))
		other := pool.DeepCopy()
		other.Spec.Model.MaxLength++
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				refusals, _ := Validate(other, pool)
				FieldErrors(pool, refusals)
			}
		})
	}
}

// TestCheckQuantitiesOfAnyText holds that the check before decoding takes what is no JSON.
func TestCheckQuantitiesOfAnyText(t *testing.T) {
	for _, text := range []string{"", `"`, `}`, `}}]{`, `]["`, `{"a`, `{"a":`, `{"limits":{"cpu":"1e`, `"\`, `{"a\`, strings.Repeat("{", 100)} {
		if err := CheckQuantities([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
