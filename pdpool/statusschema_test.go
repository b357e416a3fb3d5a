package pdpool

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// schemaOfStatus refuses a status as an API server does. One that is refused is never
// written, and what it tells is never known.
func schemaOfStatus(t *testing.T) func(v1alpha1.PDPoolStatus) error {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(readFile(t, filepath.Join("..", "config", "crd", "bases", "pdpool.dev_pdpools.yaml")), &crd); err != nil {
		t.Fatal(err)
	}
	of := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&of, &internal, nil); err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return func(status v1alpha1.PDPoolStatus) error {
		var tree map[string]any
		if err := utiljson.Unmarshal(encode(status), &tree); err != nil {
			return err
		}
		return validation.ValidateCustomResource(nil, tree, validator).ToAggregate()
	}
}

// TestStatusOfWrongPoolsFitsTheSchema holds it of pools that came past the webhook.
func TestStatusOfWrongPoolsFitsTheSchema(t *testing.T) {
	fits := schemaOfStatus(t)
	seen := Observed{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, c := range problemCases(t) {
		if err := fits(Status(c.pool, seen, Compute(c.pool, seen, testDefaults), nil)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestStatusOfTroubleFitsTheSchema holds it while everybody has much to say.
func TestStatusOfTroubleFitsTheSchema(t *testing.T) {
	fits := schemaOfStatus(t)
	long := strings.Repeat("ö\x01", 20_000)
	c := newCluster(t, simulatorPool(t, replicas(3, 3)), 40)
	c.defaults.AgentImage = strings.Repeat("a", 600)
	c.rejects = func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelReplica] == "1" }
	status := func(plan Plan, err error) {
		t.Helper()
		if err := fits(Status(c.pool, c.observed(), plan, err)); err != nil {
			t.Errorf("%s: %v", plan.Reason, err)
		}
	}
	for second := range 70 {
		for _, p := range c.pods() {
			switch {
			case podReady(p) && second%30 == 29:
				c.fail(p)
				p.Spec.NodeName = strings.Repeat("n", 253)
				p.Status.ContainerStatuses[0].State.Terminated.Message = long
			case p.Status.Phase == corev1.PodFailed:
				p.Status.Message = long
			case p.Spec.NodeName == "":
				c.condition(p, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable)
				p.Status.Conditions[len(p.Status.Conditions)-1].Message = long
			}
		}
		plan := c.steps(1)
		status(plan, nil)
		for _, o := range plan.Create {
			status(plan, &RefusedError{Kind: "Pod", Name: o.GetName(), Err: errors.New(long)})
		}
	}
}
