// Package controllers is the operator's shell around package pdpool: it observes
// the cluster, lets the core compute a plan, applies it, and writes the status.
// It is the only place with a client, and it decides nothing.
package controllers

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// +kubebuilder:rbac:groups=pdpool.dev,resources=pdpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=pdpool.dev,resources=pdpools/status,verbs=update
// +kubebuilder:rbac:groups=pdpool.dev,resources=pdpools/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,verbs=bind,resourceNames=pdpool-router
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get,resourceNames=pdpools.pdpool.dev

// fieldOwner owns what the operator applies.
const fieldOwner = client.FieldOwner("pdpool")

// PDPoolReconciler brings the children of pools in line with their specs.
type PDPoolReconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server: only to tell who owns an object that exists already.
	Live     client.Reader
	Recorder events.EventRecorder
	Defaults pdpool.Defaults
	// Now is the clock.
	Now func() time.Time

	inventory inventory
}

// SetupWithManager registers the controller, its watches and its index.
func (r *PDPoolReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	for _, kind := range ownedKinds() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, kind, ownerIndex, ownerUID); err != nil {
			return err
		}
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("pdpool").
		For(&v1alpha1.PDPool{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4,
			// An API server that was away, or a webhook in front of it, is back within
			// this at the latest for every pool.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		})
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.PDPool{}, handler.OnlyControllerOwner())
	for _, kind := range ownedKinds() {
		if _, ok := kind.(*corev1.Pod); ok {
			b = b.Watches(kind, r.notingPods(owner))
			continue
		}
		b = b.Owns(kind)
	}
	b = b.Watches(&corev1.Node{}, r.everyPool(), builder.WithPredicates(nodeChanges()))
	return b.Complete(reconcile.AsReconciler(r.Client, r))
}

// ownedKinds are the kinds of children. Every one is indexed and watched.
func ownedKinds() []client.Object {
	return []client.Object{
		&corev1.Pod{},
		&corev1.Service{},
		&corev1.ServiceAccount{},
		&appsv1.Deployment{},
		&appsv1.ControllerRevision{},
		&rbacv1.RoleBinding{},
		&networkingv1.NetworkPolicy{},
	}
}

// Reconcile looks once, computes, applies, and writes the status even when
// applying failed.
func (r *PDPoolReconciler) Reconcile(ctx context.Context, pool *v1alpha1.PDPool) (ctrl.Result, error) {
	seen, err := r.observe(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := pdpool.Compute(pool, seen, r.Defaults)
	applyErr := r.apply(ctx, pool, plan)
	status := pdpool.Status(pool, seen, plan, applyErr)
	statusErr := r.writeStatus(ctx, pool, status)
	if statusErr == nil {
		r.send(ctx, pool, plan.Events)
		r.send(ctx, pool, pdpool.Transitions(pool.Status, status))
	}
	after := plan.RequeueAfter
	if told(applyErr) {
		// The status says it; only time or the user mends it.
		applyErr, after = nil, sooner(after, retryAfter(applyErr))
	}
	return ctrl.Result{RequeueAfter: after}, errors.Join(applyErr, ignoreConflict(statusErr))
}

// The waits between looks that failed for what a retry may mend.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// refusedInterval is how long an object that the API server refused, or that is
// somebody else's, waits for its next attempt.
const refusedInterval = 30 * time.Second

// leavingInterval is how long the pool waits for an object that is on its way out.
// It is no child of this pool, so that no watch tells when it is gone.
const leavingInterval = 2 * time.Second

// retryAfter is the wait after what the status tells.
func retryAfter(err error) time.Duration {
	if _, ok := errors.AsType[*pdpool.LeavingError](err); ok {
		return leavingInterval
	}
	return refusedInterval
}

// told reports whether err holds nothing but what the status tells the user.
func told(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !told(e) })
	}
	var conflict *pdpool.ConflictError
	var refused *pdpool.RefusedError
	var leaving *pdpool.LeavingError
	return errors.As(err, &conflict) || errors.As(err, &refused) || errors.As(err, &leaving)
}

// sooner is the earlier of a requeue, where 0 is never, and another.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// ignoreConflict drops the error of a write over an older object: the newer one
// is on its way through the watch and brings a look of its own.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// writeStatus makes the one write of the status, and none when nothing differs.
func (r *PDPoolReconciler) writeStatus(ctx context.Context, pool *v1alpha1.PDPool, status v1alpha1.PDPoolStatus) error {
	if pool.DeletionTimestamp != nil || equality.Semantic.DeepEqual(pool.Status, status) {
		return nil
	}
	changed := pool.DeepCopy()
	changed.Status = status
	return client.IgnoreNotFound(r.Client.Status().Update(ctx, changed, fieldOwner))
}

// send emits events on a pool, and logs them: the API server keeps one for an hour.
func (r *PDPoolReconciler) send(ctx context.Context, pool *v1alpha1.PDPool, events []pdpool.Event) {
	for _, e := range events {
		log.FromContext(ctx).Info(e.Message, "type", e.Type, "reason", e.Reason)
		r.Recorder.Eventf(pool, nil, e.Type, e.Reason, e.Reason, "%s", e.Message)
	}
}
