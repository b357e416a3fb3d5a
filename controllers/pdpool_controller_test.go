package controllers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// What applying a plan may end with.
var (
	errConflict  = &pdpool.ConflictError{Kind: "Service", Name: "a"}
	errRefused   = &pdpool.RefusedError{Kind: "Pod", Name: "b", Err: errors.New("exceeded quota")}
	errLeaving   = &pdpool.LeavingError{Kind: "Deployment", Name: "c"}
	errTransient = errors.New("connection refused")
)

func TestTold(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                       {nil, false},
		"a name conflict":               {errConflict, true},
		"a refusal":                     {errRefused, true},
		"what is leaving":               {errLeaving, true},
		"a wrapped one":                 {fmt.Errorf("apply: %w", errRefused), true},
		"a transient one":               {errTransient, false},
		"several that are told":         {errors.Join(errConflict, errRefused, errLeaving), true},
		"one that is not among others":  {errors.Join(errConflict, errTransient), false},
		"one that is not, further down": {errors.Join(errConflict, errors.Join(errRefused, errTransient)), false},
	} {
		if got := told(c.err); got != c.want {
			t.Errorf("%s: told is %v", name, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		planned time.Duration
		err     error
		want    time.Duration
	}{
		"refused, nothing planned":     {0, errRefused, refusedInterval},
		"refused, sooner planned":      {time.Second, errRefused, time.Second},
		"refused, later planned":       {time.Hour, errRefused, refusedInterval},
		"leaving, nothing planned":     {0, errLeaving, leavingInterval},
		"leaving and a refusal as one": {0, errors.Join(errRefused, errLeaving), leavingInterval},
	} {
		if got := sooner(c.planned, retryAfter(c.err)); got != c.want {
			t.Errorf("%s: after %s, want %s", name, got, c.want)
		}
	}
}

func TestIgnoreConflict(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "pdpools"}, "a", errors.New("changed"))
	for name, c := range map[string]struct{ err, want error }{
		"nothing":            {nil, nil},
		"a conflict":         {conflict, nil},
		"a wrapped conflict": {fmt.Errorf("update: %w", conflict), nil},
		"another":            {errTransient, errTransient},
	} {
		if got := ignoreConflict(c.err); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRefusal holds which errors of the API server are told and tried again later,
// and which are tried again at once.
func TestRefusal(t *testing.T) {
	pod := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"quota or pod security":     {apierrors.NewForbidden(pod, "p", errors.New("exceeded quota")), true},
		"another webhook's refusal": {apierrors.NewBadRequest("admission webhook denied the request"), true},
		"invalid":                   {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true},
		"webhook down":              {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		"server busy":               {apierrors.NewTooManyRequests("busy", 1), false},
		"conflict":                  {apierrors.NewConflict(pod, "p", errors.New("newer")), false},
		"namespace gone":            {apierrors.NewNotFound(pod, "p"), false},
		"no connection":             {errors.New("connection refused"), false},
	} {
		if got := refusal(fmt.Errorf("create: %w", c.err)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFormer(t *testing.T) {
	pool := &v1alpha1.PDPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "2"}}
	owner := func(kind, name string, uid types.UID) *metav1.OwnerReference {
		return &metav1.OwnerReference{Kind: kind, Name: name, UID: uid}
	}
	for name, c := range map[string]struct {
		owner *metav1.OwnerReference
		want  bool
	}{
		"no owner":               {nil, false},
		"the pool before":        {owner("PDPool", "pool", "1"), true},
		"the pool itself":        {owner("PDPool", "pool", "2"), false},
		"another pool":           {owner("PDPool", "other", "1"), false},
		"another kind's of name": {owner("Deployment", "pool", "1"), false},
	} {
		if got := former(c.owner, pool); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestEventsAreLogged holds that the log tells what events do, for longer.
func TestEventsAreLogged(t *testing.T) {
	var lines bytes.Buffer
	ctx := log.IntoContext(t.Context(), logr.FromSlogHandler(slog.NewJSONHandler(&lines, nil)))
	recorder := events.NewFakeRecorder(1)
	r := &PDPoolReconciler{Recorder: recorder}
	r.send(ctx, &v1alpha1.PDPool{}, []pdpool.Event{{Type: corev1.EventTypeWarning, Reason: "Recovering", Message: "decode 0 has failed: 100%\nof it"}})
	if got, want := <-recorder.Events, "Warning Recovering decode 0 has failed: 100%\nof it"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	var line struct{ Level, Msg, Type, Reason string }
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if want := (struct{ Level, Msg, Type, Reason string }{"INFO", "decode 0 has failed: 100%\nof it", "Warning", "Recovering"}); line != want {
		t.Errorf("logged %+v, want %+v", line, want)
	}
}
