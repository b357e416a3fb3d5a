package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package.
var GroupVersion = schema.GroupVersion{Group: "pdpool.dev", Version: "v1alpha1"}

// PDPoolKind is the kind of a pool, for owner references and error texts.
const PDPoolKind = "PDPool"

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &PDPool{}, &PDPoolList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
