// Package v1alpha1 holds the API of PDPool: the types that users write and read,
// the names of labels, annotations, conditions and reasons. It has no logic.
//
// +kubebuilder:object:generate=true
// +groupName=pdpool.dev
package v1alpha1
