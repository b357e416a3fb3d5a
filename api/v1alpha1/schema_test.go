package v1alpha1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

var crdPath = filepath.Join("..", "..", "config", "crd", "bases", "pdpool.dev_pdpools.yaml")

// server admits objects as an API server does by the generated CRD: it defaults and
// validates them. old is nil for a new one.
type server func(object, old map[string]any) field.ErrorList

func newServer(t *testing.T) (server, *schema.Structural) {
	t.Helper()
	data, err := os.ReadFile(crdPath)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	if errs := schema.ValidateStructural(nil, structural); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return func(object, old map[string]any) field.ErrorList {
		pruning.Prune(object, structural, true)
		defaulting.Default(object, structural)
		errs := validation.ValidateCustomResource(nil, object, validator)
		var before any
		if old != nil {
			before = old
		}
		more, _ := rules.Validate(t.Context(), nil, structural, object, before, celconfig.RuntimeCELCostBudget)
		return append(errs, more...)
	}, structural
}

func parse(t *testing.T, manifest string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

const smallest = `
apiVersion: pdpool.dev/v1alpha1
kind: PDPool
metadata: {name: r1}
spec:
  model: {name: m}
  engine: {type: Simulator}
  prefill: {}
  decode: {}
`

// edit is an object with a value set at a path.
func edit(t *testing.T, manifest string, path []string, value any) map[string]any {
	t.Helper()
	object := parse(t, manifest)
	at := object
	for _, step := range path[:len(path)-1] {
		inner, ok := at[step].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[step] = inner
		}
		at = inner
	}
	last := path[len(path)-1]
	if value == nil {
		delete(at, last)
	} else {
		at[last] = value
	}
	return object
}

func TestSamplesAreValid(t *testing.T) {
	admit, structural := newServer(t)
	samples, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "*.yaml"))
	if err != nil || len(samples) < 3 {
		t.Fatalf("samples %v, %v", samples, err)
	}
	for _, path := range samples {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		object := parse(t, string(data))
		before := parse(t, string(data))
		if errs := admit(object, nil); len(errs) > 0 {
			t.Errorf("%s: %v", path, errs.ToAggregate())
		}
		pruning.Prune(before, structural, true)
		for key := range parse(t, string(data))["spec"].(map[string]any) {
			if _, ok := before["spec"].(map[string]any)[key]; !ok {
				t.Errorf("%s: spec.%s is no field of the API", path, key)
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	admit, _ := newServer(t)
	object := parse(t, smallest)
	if errs := admit(object, nil); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	want := parse(t, `
apiVersion: pdpool.dev/v1alpha1
kind: PDPool
metadata: {name: r1}
spec:
  model: {name: m}
  engine: {type: Simulator, kvCacheType: Auto}
  transfer:
    mode: Write
    mover: Auto
    backend: Auto
    transferTimeoutSeconds: 30
    deferTimeoutSeconds: 60
    receiveAbortTimeoutSeconds: 120
    drainTimeoutSeconds: 120
  gpu: {resourceName: amd.com/gpu, devicesPerNode: 8}
  prefill: {layout: {tp: 1, dp: 1, dcp: 1}}
  decode: {layout: {tp: 1, dp: 1, dcp: 1}}
  router: {mode: Builtin}
  network: {policy: Managed}
status: {observedGeneration: -1}
`)
	got, _ := utiljson.Marshal(object)
	expected, _ := utiljson.Marshal(want)
	if string(got) != string(expected) {
		t.Errorf("defaulted to\n%s\nwant\n%s", got, expected)
	}
}

func TestRefusals(t *testing.T) {
	admit, _ := newServer(t)
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct {
		path  []string
		value any
		want  string // part of the message; "" is admitted
	}{
		// The webhook refuses it, together with all else that is wrong.
		"name of 31 characters":       {[]string{"metadata", "name"}, strings.Repeat("a", 31), ""},
		"no model":                    {[]string{"spec", "model", "name"}, nil, "Required"},
		"empty model":                 {[]string{"spec", "model", "name"}, "", "at least 1"},
		"no image":                    {[]string{"spec", "engine", "type"}, "vLLM", "spec.engine.image is required"},
		"unknown engine":              {[]string{"spec", "engine", "type"}, "vllm", "Unsupported value"},
		"unknown mode":                {[]string{"spec", "transfer", "mode"}, "WRITE", "Unsupported value"},
		"tp 0":                        {[]string{"spec", "prefill", "layout", "tp"}, int64(0), "greater than or equal to 1"},
		"replicas 0":                  {[]string{"spec", "prefill", "replicas"}, int64(0), ""},
		"replicas -1":                 {[]string{"spec", "prefill", "replicas"}, int64(-1), "greater than or equal to 0"},
		"model of two lines":          {[]string{"spec", "model", "name"}, "m\nevil", "should match"},
		"model with NUL":              {[]string{"spec", "model", "name"}, "m\x00", "should match"},
		"model with a C1 control":     {[]string{"spec", "model", "name"}, "m\u0085evil", "should match"},
		"model of any language":       {[]string{"spec", "model", "name"}, "modèle/模型", ""},
		"served name with ESC":        {[]string{"spec", "model", "servedName"}, "\x1b[2J", "should match"},
		"image of two lines":          {[]string{"spec", "engine", "image"}, "i\n", "should match"},
		"version with ESC":            {[]string{"spec", "engine", "version"}, "1\x1b", "should match"},
		"argument with NUL":           {[]string{"spec", "decode", "args"}, []any{"--a=\x00"}, "should match"},
		"argument of several lines":   {[]string{"spec", "decode", "args"}, []any{"--chat-template={\n\t}"}, ""},
		"memory":                      {[]string{"spec", "engine", "kvCacheMemory"}, "64Gi", ""},
		"memory in bytes":             {[]string{"spec", "engine", "kvCacheMemory"}, int64(1 << 30), ""},
		"memory in decimals":          {[]string{"spec", "engine", "kvCacheMemory"}, "1.5e11", ""},
		"no memory":                   {[]string{"spec", "engine", "kvCacheMemory"}, int64(0), "more than 0"},
		"negative memory":             {[]string{"spec", "engine", "kvCacheMemory"}, "-1Gi", "more than 0"},
		"memory of a long scale":      {[]string{"spec", "engine", "kvCacheMemory"}, "1e400", "exponent"},
		"memory of a small scale":     {[]string{"spec", "engine", "kvCacheMemory"}, "1e-99999999", "exponent"},
		"replicas 257":                {[]string{"spec", "prefill", "replicas"}, int64(257), "less than or equal to 256"},
		"long argument":               {[]string{"spec", "engine", "args"}, []any{long}, "4096"},
		"many arguments":              {[]string{"spec", "engine", "args"}, make([]any, 129), "at most 128"},
		"GPU resource without domain": {[]string{"spec", "gpu", "resourceName"}, "gpu", "should match"},
		"any template":                {[]string{"spec", "decode", "template"}, map[string]any{"spec": map[string]any{"anything": true}}, ""},
		"template that is no object":  {[]string{"spec", "decode", "template"}, "x", "must be of type object"},
		"MLA with many KV heads":      {[]string{"spec", "model", "geometry"}, geometry("MLA", 128, 8), "kvHeads must be unset or 1"},
		"MLA":                         {[]string{"spec", "model", "geometry"}, geometry("MLA", 128, 0), ""},
		"GQA without KV heads":        {[]string{"spec", "model", "geometry"}, geometry("GQA", 64, 0), "kvHeads must be set"},
		"GQA with uneven heads":       {[]string{"spec", "model", "geometry"}, geometry("GQA", 64, 7), "divide attentionHeads"},
		"GQA":                         {[]string{"spec", "model", "geometry"}, geometry("GQA", 64, 8), ""},
		"router None":                 {[]string{"spec", "router"}, map[string]any{"mode": "None"}, ""},
		"router None with an image":   {[]string{"spec", "router"}, map[string]any{"mode": "None", "image": "x"}, "no effect with router.mode None"},
		"device ids":                  {[]string{"spec", "gpu"}, map[string]any{"deviceIDs": []any{"74a1", "75a3"}}, ""},
		"a device id in upper case":   {[]string{"spec", "gpu"}, map[string]any{"deviceIDs": []any{"74A1"}}, "deviceIDs"},
		"a partition":                 {[]string{"spec", "gpu"}, map[string]any{"partition": "cpx_nps4"}, ""},
		"half a partition":            {[]string{"spec", "gpu"}, map[string]any{"partition": "cpx"}, "partition"},
		"router None with replicas":   {[]string{"spec", "router"}, map[string]any{"mode": "None", "replicas": int64(2)}, "no effect with router.mode None"},
	} {
		t.Run(name, func(t *testing.T) {
			if args, ok := c.value.([]any); ok && len(args) == 129 {
				for i := range args {
					args[i] = "x"
				}
			}
			errs := admit(edit(t, smallest, c.path, c.value), nil)
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case c.want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.want)):
				t.Errorf("errors %v, want %q", errs, c.want)
			}
		})
	}
}

func geometry(kind string, heads, kvHeads int64) map[string]any {
	g := map[string]any{"kind": kind, "layers": int64(4), "attentionHeads": heads, "headValues": int64(128)}
	if kvHeads > 0 {
		g["kvHeads"] = kvHeads
	}
	return g
}

// The server refuses a CRD whose rules may cost too much, among others.
func TestServerTakesTheCRD(t *testing.T) {
	data, err := os.ReadFile(crdPath)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.StoredVersions = []string{"v1alpha1"}
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
		t.Fatal(err)
	}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}

// Client-side apply keeps the last manifest in an annotation, which has a limit.
func TestCRDFitsIntoAnAnnotation(t *testing.T) {
	info, err := os.Stat(crdPath)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() >= 262_144 {
		t.Errorf("the CRD has %d bytes", info.Size())
	}
}
