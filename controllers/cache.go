package controllers

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// CacheOptions are those of a manager that runs a PDPoolReconciler: of the kinds of
// children the cache holds what belongs to pools, of nodes what tells of their
// devices, and of no object who wrote it.
func CacheOptions() cache.Options {
	ours := labels.NewSelector()
	if has, err := labels.NewRequirement(v1alpha1.LabelPool, selection.Exists, nil); err == nil {
		ours = ours.Add(*has)
	}
	byObject := map[client.Object]cache.ByObject{}
	for _, kind := range ownedKinds() {
		byObject[kind] = cache.ByObject{Label: ours}
	}
	byObject[&corev1.Node{}] = cache.ByObject{Transform: trimNode}
	return cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()}
}
