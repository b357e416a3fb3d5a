// Package webhook is the admission webhook of pools: a validating adapter over
// pdpool.Validate. It changes nothing and reads nothing but the manifest.
package webhook

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// Validator refuses pools that cannot work.
type Validator struct{}

var _ admission.Handler = Validator{}

// SetupWithManager serves the validator under the path that the chart names.
func (v Validator) SetupWithManager(mgr ctrl.Manager) error {
	mgr.GetWebhookServer().Register(path, v.hook())
	return nil
}

// path is where the API server asks, as the chart names it.
const path = "/validate-pdpool-dev-v1alpha1-pdpool"

func (v Validator) hook() *admission.Webhook {
	return &admission.Webhook{Handler: v, LogConstructor: logger}
}

// logger names the pool and no more: it is made for each question, before anything
// is logged, and the default one encodes all that a question says about its sender.
func logger(base logr.Logger, req *admission.Request) logr.Logger {
	if req == nil {
		return base
	}
	return base.WithValues("namespace", req.Namespace, "name", req.Name)
}

// Handle answers one question of the API server: on a new pool or a changed one, and
// whatever else is asked is admitted.
func (Validator) Handle(_ context.Context, req admission.Request) admission.Response {
	var old *v1alpha1.PDPool
	switch req.Operation {
	case admissionv1.Create:
	case admissionv1.Update:
		// An old pool that would take long to decode is as good as none, so that it can
		// be mended.
		if pdpool.CheckQuantities(req.OldObject.Raw) == nil {
			var err error
			if old, err = decode(req.OldObject.Raw); err != nil {
				return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the pool as it was: %w", err))
			}
		}
	default:
		return admission.Allowed("")
	}
	if err := pdpool.CheckQuantities(req.Object.Raw); err != nil {
		return admission.Denied(err.Error())
	}
	pool, err := decode(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the pool: %w", err))
	}
	return answer(old, pool)
}

// decode reads a pool that the API server has checked against the schema. It is asked
// about nothing else, so that the kind need not be looked up.
func decode(raw []byte) (*v1alpha1.PDPool, error) {
	pool := &v1alpha1.PDPool{}
	return pool, kjson.UnmarshalCaseSensitivePreserveInts(raw, pool)
}

func answer(old, pool *v1alpha1.PDPool) admission.Response {
	refusals, warnings := pdpool.Validate(old, pool)
	response := admission.Allowed("")
	if len(refusals) > 0 {
		kind := v1alpha1.GroupVersion.WithKind(v1alpha1.PDPoolKind).GroupKind()
		status := apierrors.NewInvalid(kind, pool.Name, pdpool.FieldErrors(pool, refusals)).Status()
		response = admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
	}
	return response.WithWarnings(pdpool.Sentences(warnings)...)
}
