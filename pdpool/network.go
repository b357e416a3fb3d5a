package pdpool

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// policies are the NetworkPolicies of a pool: pods of the pool reach each other on
// every port, and others what is meant for them. They say nothing of what pods may
// reach.
func (r *Resolved) policies(pool *v1alpha1.PDPool) []Object {
	if !r.NetworkPolicy {
		return nil
	}
	// Engine pods choose their ports one by one, so that rules know them by name.
	// What of the agent's port could harm wants a token.
	open := []intstr.IntOrString{intstr.FromString(agentPort)}
	if !r.Router.Builtin {
		// A router of the user's own may run anywhere.
		open = append(open, intstr.FromString(enginePort))
	}
	out := []Object{policy(pool, enginesName(pool.Name), "", membersSelector(pool), open...)}
	if r.Router.Builtin {
		out = append(out, policy(pool, routerName(pool.Name), v1alpha1.RoleRouter, routerSelector(pool),
			intstr.FromInt32(routerHTTP), intstr.FromInt32(routerMetrics)))
	}
	return out
}

// policy lets pods of the pool in, and everybody to the open ports.
func policy(pool *v1alpha1.PDPool, name, role string, selector map[string]string, open ...intstr.IntOrString) *networkingv1.NetworkPolicy {
	ports := make([]networkingv1.NetworkPolicyPort, 0, len(open))
	for _, p := range open {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: &p})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: childMeta(pool, name, childLabels(pool, role)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: selector},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{From: []networkingv1.NetworkPolicyPeer{{
					PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelPool: pool.Name}},
				}}},
				{Ports: ports},
			},
		},
	}
}
