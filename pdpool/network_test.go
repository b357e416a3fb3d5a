package pdpool

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// opened are the named or numbered ports that a policy opens to everybody.
func opened(p *networkingv1.NetworkPolicy) []string {
	var out []string
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if len(rule.From) == 0 {
				out = append(out, port.Port.String())
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestPolicies holds that each pod of a pool is selected by one policy, that pods of
// the pool are let in everywhere, and others only where they have business.
func TestPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1alpha1.PDPoolSpec)
		want map[string][]string
	}{
		"by default": {func(*v1alpha1.PDPoolSpec) {}, map[string][]string{"r1-engines": {"agent"}, "r1-router": {"8000", "9090"}}},
		"a router of the user's own": {
			func(s *v1alpha1.PDPoolSpec) { s.Router = v1alpha1.RouterSpec{Mode: v1alpha1.RouterNone} },
			map[string][]string{"r1-engines": {"agent", "http"}},
		},
		"none": {func(s *v1alpha1.PDPoolSpec) { s.Network.Policy = v1alpha1.NetworkPolicyNone }, map[string][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, simulatorPool(t), 16)
			cl.run(30)
			cl.change(c.edit)
			cl.run(30)
			policies := list[networkingv1.NetworkPolicy](cl)
			if len(policies) != len(c.want) {
				t.Errorf("%d policies, want %d", len(policies), len(c.want))
			}
			for i := range policies {
				if got := opened(&policies[i]); !slices.Equal(got, c.want[policies[i].Name]) {
					t.Errorf("%s opens %v, want %v", policies[i].Name, got, c.want[policies[i].Name])
				}
			}
			for _, p := range cl.pods() {
				selecting := 0
				for i := range policies {
					s, err := metav1.LabelSelectorAsSelector(&policies[i].Spec.PodSelector)
					if err != nil {
						t.Fatal(err)
					}
					if s.Matches(labels.Set(p.Labels)) {
						selecting++
					}
				}
				if want := min(1, len(c.want)); selecting != want {
					t.Errorf("%d policies select pod %s", selecting, p.Name)
				}
			}
		})
	}
}

// TestPolicyChangeTouchesNoPod holds that policies are no part of a revision.
func TestPolicyChangeTouchesNoPod(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 16)
	c.run(30)
	before := c.names()
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Network.Policy = v1alpha1.NetworkPolicyNone })
	c.run(30)
	if after := c.names(); !slices.Equal(before, after) {
		t.Errorf("pods %v became %v", before, after)
	}
}
