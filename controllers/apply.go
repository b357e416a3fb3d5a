package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// apply carries out a plan. It goes on after a refused object, so that one that
// can't be made does not hold up the others, and returns all that went wrong.
func (r *PDPoolReconciler) apply(ctx context.Context, pool *v1alpha1.PDPool, plan pdpool.Plan) error {
	var errs []error
	for _, obj := range plan.Create {
		errs = append(errs, r.create(ctx, pool, obj))
	}
	for _, obj := range plan.Apply {
		if obj.GetUID() == "" {
			errs = append(errs, r.applyNew(ctx, pool, obj))
		} else {
			errs = append(errs, r.serverSideApply(ctx, obj, client.ForceOwnership))
		}
	}
	for _, obj := range plan.Delete {
		errs = append(errs, r.remove(ctx, obj))
	}
	return errors.Join(errs...)
}

// create makes an object. One that exists is fine when it is the pool's, by its owner and
// by the labels that the operator finds it by: the cache was behind.
func (r *PDPoolReconciler) create(ctx context.Context, pool *v1alpha1.PDPool, obj pdpool.Object) error {
	kind, err := r.kind(obj)
	if err != nil {
		return err
	}
	err = r.Client.Create(ctx, obj, fieldOwner)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		if _, secret := obj.(*corev1.Secret); secret {
			return nil // the operator may not read whose it is
		}
		there, err := r.own(ctx, pool, obj, kind)
		switch {
		case err != nil || labelledAs(there, obj):
			return err
		case there.GetDeletionTimestamp() != nil:
			return &pdpool.LeavingError{Kind: kind, Name: obj.GetName()}
		}
		return &pdpool.ConflictError{Kind: kind, Name: obj.GetName()}
	case refusal(err):
		return &pdpool.RefusedError{Kind: kind, Name: obj.GetName(), Err: err}
	}
	return fmt.Errorf("create %s %q: %w", kind, obj.GetName(), err)
}

// applyNew makes an object that is applied later on. It is made by an apply too:
// fields of a create would be owned twice, and those that are not wanted any more
// would stay. An apply can't be told to create only, so it takes two guards: the
// server has no object of that name, and fields of one that comes up meanwhile are
// not taken by force. One that is there and the pool's is fine, as the cache was
// behind, unless somebody took the labels by which it is found.
func (r *PDPoolReconciler) applyNew(ctx context.Context, pool *v1alpha1.PDPool, obj pdpool.Object) error {
	kind, err := r.kind(obj)
	if err != nil {
		return err
	}
	there, err := r.own(ctx, pool, obj, kind)
	switch {
	case apierrors.IsNotFound(err):
		if err = r.serverSideApply(ctx, obj); apierrors.IsConflict(err) {
			_, err = r.own(ctx, pool, obj, kind)
		}
		return err
	case err != nil || there.GetDeletionTimestamp() != nil || labelledAs(there, obj):
		return err
	}
	obj.SetUID(there.GetUID())
	return r.serverSideApply(ctx, obj, client.ForceOwnership)
}

// own reads the object that has this name, and tells whether the pool controls it.
func (r *PDPoolReconciler) own(ctx context.Context, pool *v1alpha1.PDPool, obj pdpool.Object, kind string) (client.Object, error) {
	there := obj.DeepCopyObject().(client.Object)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(obj), there); err != nil {
		return nil, fmt.Errorf("read %s %q: %w", kind, obj.GetName(), err)
	}
	if metav1.IsControlledBy(there, pool) {
		return there, nil
	}
	if there.GetDeletionTimestamp() != nil || former(metav1.GetControllerOf(there), pool) {
		return nil, &pdpool.LeavingError{Kind: kind, Name: obj.GetName()}
	}
	return nil, &pdpool.ConflictError{Kind: kind, Name: obj.GetName()}
}

// labelledAs says whether an object that is there has the operator's labels as wanted.
// One that has not is not found by them: nothing would go on.
func labelledAs(there, wanted client.Object) bool {
	has := there.GetLabels()
	for key, value := range wanted.GetLabels() {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") && has[key] != value {
			return false
		}
	}
	return true
}

// former says whether an owner is a pool that had the name before. The garbage
// collector takes its children.
func former(owner *metav1.OwnerReference, pool *v1alpha1.PDPool) bool {
	return owner != nil && owner.Kind == v1alpha1.PDPoolKind && owner.Name == pool.Name && owner.UID != pool.UID
}

// serverSideApply writes the whole intent. One with a UID goes over the object that
// was seen, and over no other.
func (r *PDPoolReconciler) serverSideApply(ctx context.Context, obj pdpool.Object, options ...client.ApplyOption) error {
	gvk, err := apiutil.GVKForObject(obj, r.Client.Scheme())
	if err != nil {
		return fmt.Errorf("kind of %T: %w", obj, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode %s %q: %w", gvk.Kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), append(options, fieldOwner)...)
	switch {
	case err == nil:
		return nil
	case refusal(err):
		return &pdpool.RefusedError{Kind: gvk.Kind, Name: obj.GetName(), Err: err}
	}
	return fmt.Errorf("apply %s %q: %w", gvk.Kind, obj.GetName(), err)
}

// refusal tells whether the server, or a webhook that it asked, understood the
// object and does not want it: the same object is refused again.
func refusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotAcceptable, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// remove deletes the object that was seen, and no other of its name.
func (r *PDPoolReconciler) remove(ctx context.Context, obj pdpool.Object) error {
	uid := obj.GetUID()
	err := r.Client.Delete(ctx, obj, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete %q: %w", obj.GetName(), err)
}

func (r *PDPoolReconciler) kind(obj pdpool.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(obj, r.Client.Scheme())
	if err != nil {
		return "", fmt.Errorf("kind of %T: %w", obj, err)
	}
	return gvk.Kind, nil
}
