// Package webhook is the admission webhook of pools: a validating adapter over
// pdpool.Validate. It changes nothing and reads nothing but the manifest.
package webhook

import (
	"context"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// Validator refuses pools that cannot work.
type Validator struct{}

var _ admission.Validator[*v1alpha1.PDPool] = Validator{}

// SetupWithManager serves the validator under the path that the chart names.
func (v Validator) SetupWithManager(mgr ctrl.Manager) error {
	mgr.GetWebhookServer().Register(path, v.handler(mgr.GetScheme()))
	return nil
}

// path is where the API server asks, as the chart names it.
const path = "/validate-pdpool-dev-v1alpha1-pdpool"

func (v Validator) handler(scheme *runtime.Scheme) *admission.Webhook {
	hook := admission.WithValidator(scheme, v)
	hook.Handler, hook.LogConstructor = bounded{hook.Handler}, logger
	return hook
}

// bounded refuses what would take long to decode.
type bounded struct{ admission.Handler }

// Handle answers one question of the API server.
func (b bounded) Handle(ctx context.Context, req admission.Request) admission.Response {
	for _, raw := range [][]byte{req.Object.Raw, req.OldObject.Raw} {
		if err := pdpool.CheckQuantities(raw); err != nil {
			return admission.Denied(err.Error())
		}
	}
	return b.Handler.Handle(ctx, req)
}

// logger names the pool and no more: it is made for each question, before anything
// is logged, and the default one encodes all that a question says about its sender.
func logger(base logr.Logger, req *admission.Request) logr.Logger {
	if req == nil {
		return base
	}
	return base.WithValues("namespace", req.Namespace, "name", req.Name)
}

// ValidateCreate decides on a new pool.
func (Validator) ValidateCreate(_ context.Context, pool *v1alpha1.PDPool) (admission.Warnings, error) {
	return validate(nil, pool)
}

// ValidateUpdate decides on a changed pool.
func (Validator) ValidateUpdate(_ context.Context, old, pool *v1alpha1.PDPool) (admission.Warnings, error) {
	return validate(old, pool)
}

// ValidateDelete admits every deletion.
func (Validator) ValidateDelete(context.Context, *v1alpha1.PDPool) (admission.Warnings, error) {
	return nil, nil
}

func validate(old, pool *v1alpha1.PDPool) (admission.Warnings, error) {
	refusals, warnings := pdpool.Validate(old, pool)
	told := admission.Warnings(pdpool.Sentences(warnings))
	if len(refusals) == 0 {
		return told, nil
	}
	kind := v1alpha1.GroupVersion.WithKind(v1alpha1.PDPoolKind).GroupKind()
	return told, apierrors.NewInvalid(kind, pool.Name, pdpool.FieldErrors(pool, refusals))
}
