package controllers

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// crdName is the name of the CustomResourceDefinition.
const crdName = "pdpools.pdpool.dev"

// CheckServedSchema compares the fields that the API server serves with those
// that this manager knows. An older definition would drop fields without a word,
// so that a layout silently differs from what the user wrote; the manager must
// not reconcile over one.
func CheckServedSchema(ctx context.Context, reader client.Reader) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := reader.Get(ctx, types.NamespacedName{Name: crdName}, &crd); err != nil {
		return fmt.Errorf("read CustomResourceDefinition %s (install it with the chart or config/crd): %w", crdName, err)
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != v1alpha1.GroupVersion.Version || !v.Served || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		if missing := missingFields(v.Schema.OpenAPIV3Schema); len(missing) > 0 {
			return fmt.Errorf("CustomResourceDefinition %s lacks the fields %s: it is older than this manager, upgrade it first",
				crdName, strings.Join(missing, ", "))
		}
		return nil
	}
	return fmt.Errorf("CustomResourceDefinition %s does not serve %s: upgrade it first", crdName, v1alpha1.GroupVersion)
}

// missingFields lists the paths of spec and status that the schema has not got.
func missingFields(root *apiextensionsv1.JSONSchemaProps) []string {
	var missing []string
	for _, part := range []struct {
		name string
		of   reflect.Type
	}{{"spec", reflect.TypeFor[v1alpha1.PDPoolSpec]()}, {"status", reflect.TypeFor[v1alpha1.PDPoolStatus]()}} {
		schema, ok := root.Properties[part.name]
		if !ok {
			missing = append(missing, part.name)
			continue
		}
		missing = append(missing, compare(part.name, part.of, &schema)...)
	}
	return missing
}

// compare walks our own struct types; types of other packages are opaque.
func compare(path string, t reflect.Type, schema *apiextensionsv1.JSONSchemaProps) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			if schema.Items == nil || schema.Items.Schema == nil {
				return nil
			}
			schema = schema.Items.Schema
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[v1alpha1.PDPoolSpec]().PkgPath() {
		return nil
	}
	var missing []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		at := path + "." + name
		child, ok := schema.Properties[name]
		if !ok {
			missing = append(missing, at)
			continue
		}
		missing = append(missing, compare(at, field.Type, &child)...)
	}
	return missing
}
