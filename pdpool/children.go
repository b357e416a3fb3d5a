package pdpool

import (
	"encoding/json"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// Ports of a router pod.
const (
	routerHTTP          = 8000
	routerMetrics       = 9090
	routerRegistrations = 36367 // MoRIIO's own default for its proxy
)

// routerGrace is how long a router that is told to end may go on with the streams
// that it has, in seconds.
const routerGrace = 120

// routerResources are what a router has when the spec says nothing. Streams take less
// than 100 MiB for the 1024 requests that are in work at once; of the limit a quarter is for
// their bodies, 128 KiB each, which are in memory about twice while they grow. Nobody
// changes them.
var routerResources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
}

// routerRecord is what a ControllerRevision holds of a router's revision.
type routerRecord struct {
	Version  int                    `json:"version"`
	Template corev1.PodTemplateSpec `json:"template"`
}

// newRouterRecord renders the router's pods.
func (r *Resolved) newRouterRecord(pool *v1alpha1.PDPool) routerRecord {
	hash := r.routerRevision(pool.Spec.Router)
	labels := childLabels(pool, v1alpha1.RoleRouter)
	labels[v1alpha1.LabelRevision] = hash
	return routerRecord{Version: recordVersion, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			ServiceAccountName:            routerName(pool.Name),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(routerGrace)),
			SecurityContext:               r.podSecurity(),
			Tolerations:                   tolerations(),
			Containers:                    []corev1.Container{r.routerContainer(pool)},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: routerSelector(pool)},
			}},
		},
	}}
}

func (r *Resolved) routerContainer(pool *v1alpha1.PDPool) corev1.Container {
	// Who does not have to be heard is not: a flag without a value opens no port.
	registrations, ports := "", []corev1.ContainerPort{port("http", routerHTTP), port("metrics", routerMetrics)}
	if r.Router.Registrations {
		registrations, ports = ":"+strconv.Itoa(routerRegistrations), append(ports, port("registrations", routerRegistrations))
	}
	return corev1.Container{
		Name:  v1alpha1.ContainerRouter,
		Image: r.Router.Image,
		Args: []string{
			"--namespace=" + pool.Namespace,
			"--pool=" + pool.Name,
			"--listen=:" + strconv.Itoa(routerHTTP),
			"--metrics=:" + strconv.Itoa(routerMetrics),
			"--registrations=" + registrations,
		},
		Env:             []corev1.EnvVar{memoryLimit(v1alpha1.ContainerRouter)},
		Ports:           ports,
		Resources:       r.Router.Resources,
		StartupProbe:    startup(routerMetrics, "/healthz", agentStartup),
		ReadinessProbe:  probe(routerMetrics, "/readyz", probePeriod, 2),
		LivenessProbe:   probe(routerMetrics, "/healthz", livenessPeriod, 3),
		SecurityContext: restricted(),
	}
}

func membersSelector(pool *v1alpha1.PDPool) map[string]string {
	return map[string]string{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelComponent: v1alpha1.ComponentEngine}
}

func routerSelector(pool *v1alpha1.PDPool) map[string]string {
	return map[string]string{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelRole: v1alpha1.RoleRouter}
}

// applied lists the children that are applied whole, but for the router's
// Deployment: the Service of the engine pods, the policies, and what the router needs.
func (r *Resolved) applied(pool *v1alpha1.PDPool) []Object {
	out := append([]Object{membersService(pool)}, r.policies(pool)...)
	if !r.Router.Builtin {
		return out
	}
	out = append(out, serviceAccount(pool), roleBinding(pool), routerService(pool))
	if r.Router.Registrations {
		out = append(out, routersService(pool))
	}
	return out
}

func membersService(pool *v1alpha1.PDPool) *corev1.Service {
	return service(pool, membersName(pool.Name), "", corev1.ServiceSpec{
		ClusterIP:                corev1.ClusterIPNone,
		PublishNotReadyAddresses: true,
		Selector:                 membersSelector(pool),
	})
}

func routerService(pool *v1alpha1.PDPool) *corev1.Service {
	return service(pool, routerName(pool.Name), v1alpha1.RoleRouter, corev1.ServiceSpec{
		Selector: routerSelector(pool),
		Ports:    []corev1.ServicePort{servicePort("http", 80, routerHTTP)},
	})
}

func routersService(pool *v1alpha1.PDPool) *corev1.Service {
	return service(pool, routersName(pool.Name), v1alpha1.RoleRouter, corev1.ServiceSpec{
		ClusterIP:                corev1.ClusterIPNone,
		PublishNotReadyAddresses: true,
		Selector:                 routerSelector(pool),
		Ports:                    []corev1.ServicePort{servicePort("registrations", routerRegistrations, routerRegistrations)},
	})
}

func service(pool *v1alpha1.PDPool, name, role string, spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: childMeta(pool, name, childLabels(pool, role)),
		Spec:       spec,
	}
}

func servicePort(name string, port, target int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(target), Protocol: corev1.ProtocolTCP}
}

func serviceAccount(pool *v1alpha1.PDPool) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: childMeta(pool, routerName(pool.Name), childLabels(pool, v1alpha1.RoleRouter)),
	}
}

func roleBinding(pool *v1alpha1.PDPool) *rbacv1.RoleBinding {
	name := routerName(pool.Name)
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"},
		ObjectMeta: childMeta(pool, name, childLabels(pool, v1alpha1.RoleRouter)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: routerClusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: pool.Namespace}},
	}
}

// deployment runs the router's pods as they are recorded.
func (r *Resolved) deployment(pool *v1alpha1.PDPool, router routerRecord) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: childMeta(pool, routerName(pool.Name), childLabels(pool, v1alpha1.RoleRouter)),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(r.Router.Replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: routerSelector(pool)},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1)),
				},
			},
			Template: router.Template,
		},
	}
}

// sign notes on an object what is wanted of it.
func sign(o Object) {
	tree := object(o)
	delete(tree, "status")
	o.SetAnnotations(map[string]string{v1alpha1.AnnotationApplied: hash(16, tree)})
}

// asApplied says whether the live object has everything that is wanted. What
// others added, the server's defaults among it, does not count, so that an object
// that an admission plugin completes is not applied again and again. What was
// wanted once and is not any more shows in the signature.
func asApplied(live, wanted Object) bool {
	l, w := object(live), object(wanted)
	delete(w, "status")
	return contains(l, w)
}

func object(o Object) map[string]any {
	var tree map[string]any
	if json.Unmarshal(encode(o), &tree) != nil {
		return nil
	}
	delete(tree, "apiVersion") // absent from objects that a typed client read
	delete(tree, "kind")
	return tree
}

// contains says whether live has all that wanted has. Elements of lists with a name
// are compared with the one of the same name, others by place.
func contains(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return len(wanted) == 0
		}
		for key, w := range wanted {
			if !contains(live[key], w) {
				return false
			}
		}
		return true
	case []any:
		return containsList(live, wanted)
	}
	return live == wanted
}

func containsList(live any, wanted []any) bool {
	l, _ := live.([]any)
	for i, w := range wanted {
		name, named := nameOf(w)
		if !named {
			if i >= len(l) || len(l) != len(wanted) || !contains(l[i], w) {
				return false
			}
			continue
		}
		found := false
		for _, e := range l {
			if n, ok := nameOf(e); ok && n == name {
				found = contains(e, w)
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}

func nameOf(v any) (string, bool) {
	m, _ := v.(map[string]any)
	name, ok := m["name"].(string)
	return name, ok
}
