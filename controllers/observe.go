package controllers

import (
	"context"
	"crypto/rand"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// ownerIndex indexes children by the UID of the pool that controls them: a pool
// that was deleted and made again under its name does not adopt the old one's.
const ownerIndex = "pdpool.controller.uid"

func ownerUID(obj client.Object) []string {
	owner := metav1.GetControllerOf(obj)
	if owner == nil || owner.Kind != v1alpha1.PDPoolKind {
		return nil
	}
	return []string{string(owner.UID)}
}

// observe reads everything that the core decides by, once.
func (r *PDPoolReconciler) observe(ctx context.Context, pool *v1alpha1.PDPool) (pdpool.Observed, error) {
	seen := pdpool.Observed{Now: r.Now()}
	if _, err := rand.Read(seen.Entropy[:]); err != nil {
		return seen, fmt.Errorf("draw random bytes: %w", err)
	}
	var (
		pods        corev1.PodList
		services    corev1.ServiceList
		accounts    corev1.ServiceAccountList
		deployments appsv1.DeploymentList
		revisions   appsv1.ControllerRevisionList
		bindings    rbacv1.RoleBindingList
		policies    networkingv1.NetworkPolicyList
	)
	mine := []client.ListOption{client.InNamespace(pool.Namespace), client.MatchingFields{ownerIndex: string(pool.UID)}}
	for _, list := range []client.ObjectList{&pods, &services, &accounts, &deployments, &revisions, &bindings, &policies} {
		if err := r.Client.List(ctx, list, mine...); err != nil {
			return seen, fmt.Errorf("list children: %w", err)
		}
	}
	all, err := r.inventory.look(ctx, r.Client)
	if err != nil {
		return seen, err
	}
	seen.Devices, seen.PortBlocks = all.devices.At(seen.Now), all.blocks
	seen.Pods, seen.Services, seen.ServiceAccounts = pods.Items, services.Items, accounts.Items
	seen.Deployments, seen.ControllerRevisions, seen.RoleBindings = deployments.Items, revisions.Items, bindings.Items
	seen.NetworkPolicies = policies.Items
	return seen, nil
}
