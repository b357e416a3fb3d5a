// Package discovery finds the instances of a pool in Kubernetes: it watches the
// pool's engine pods and publishes which replicas are whole and ready. It is the one
// part of the router that knows Kubernetes, and the API server's absence leaves what
// was known in place.
package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/router"
)

// Config finds the API server: by a kubeconfig file, or as a pod does when path is
// empty.
func Config(path string) (*rest.Config, error) {
	if path == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server as a pod does (else --kubeconfig or --static must be set): %w", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return c, nil
}

// Pods lists and watches the engine pods of a pool. The client knows no other kind
// than pods, which keeps the router small.
func Pods(config *rest.Config, namespace, pool string) (cache.ListerWatcher, error) {
	selector, err := engines(pool)
	if err != nil {
		return nil, fmt.Errorf("pool %q: %w", pool, err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register pods: %w", err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c := rest.CopyConfig(config)
	c.APIPath = "/api"
	c.GroupVersion = &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if c.UserAgent == "" {
		c.UserAgent = "pdpool-router"
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("set up the client of the API server: %w", err)
	}
	return cache.NewFilteredListWatchFromClient(client, "pods", namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = selector
	}), nil
}

// engines selects the engine pods of a pool.
func engines(pool string) (string, error) {
	of, err := labels.NewRequirement(v1alpha1.LabelPool, selection.Equals, []string{pool})
	if err != nil {
		return "", err
	}
	in, err := labels.NewRequirement(v1alpha1.LabelRole, selection.In, []string{v1alpha1.RolePrefill, v1alpha1.RoleDecode})
	if err != nil {
		return "", err
	}
	return labels.NewSelector().Add(*of, *in).String(), nil
}

// Watch publishes the instances that the pods make up, at once when a pod changes,
// until ctx ends.
func Watch(ctx context.Context, pods cache.ListerWatcher, source *router.Source, log *slog.Logger) error {
	changed := make(chan struct{}, 1)
	turn := func() {
		select {
		case changed <- struct{}{}:
		default: // a look is due already
		}
	}
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(log.Handler()))
	informer := cache.NewSharedInformer(pods, &corev1.Pod{}, 0)
	if err := informer.SetTransform(strip); err != nil {
		return fmt.Errorf("set up the watch of pods: %w", err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { turn() },
		UpdateFunc: func(any, any) { turn() },
		DeleteFunc: func(any) { turn() },
	}); err != nil {
		return fmt.Errorf("set up the watch of pods: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	told := map[string]string{}
	var known []router.Instance
	for first := true; ; first = false {
		instances, problems := Instances(list(informer.GetStore()))
		tell(log, told, problems)
		// What others write into pods changes nothing here: the pairs stay as they are.
		if first || !reflect.DeepEqual(instances, known) {
			source.Publish(instances)
			known = instances
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func list(store cache.Store) []*corev1.Pod {
	objects := store.List()
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// tell logs what is wrong with pods, once as long as it stays.
func tell(log *slog.Logger, told, problems map[string]string) {
	for pod, problem := range problems {
		if told[pod] != problem {
			log.Warn("pod is no part of an instance", "pod", pod, "error", problem)
		}
		told[pod] = problem
	}
	for pod := range told {
		if _, still := problems[pod]; !still {
			delete(told, pod)
		}
	}
}

// strip keeps of a pod what Instances reads.
func strip(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{}
	out.Name, out.Namespace, out.UID, out.ResourceVersion = pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion
	out.Labels, out.Annotations, out.DeletionTimestamp = ours(pod.Labels), ours(pod.Annotations), pod.DeletionTimestamp
	out.Spec.NodeName = pod.Spec.NodeName
	out.Status.Phase, out.Status.PodIP, out.Status.PodIPs = pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out, nil
}

// ours keeps the labels or annotations that PDPool has written.
func ours(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") })
	return out
}
