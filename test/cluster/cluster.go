// Package cluster is what the demo and the end-to-end tests need of a running
// cluster: apply manifests, wait for pools, send requests to a router, and ask
// agents and simulated engines what they saw. Everything goes through the API
// server, so that it works wherever kubectl does; what no API can do is Machine's.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// Cluster is a cluster under test.
type Cluster struct {
	client.Client
	config  *rest.Config
	http    *http.Client
	machine *Machine
}

// Reach lets Request go to "http://ADDRESS" targets from the network of a node.
func (c *Cluster) Reach(m *Machine) { c.machine = m }

// Open connects by a kubeconfig file and a context of it ("" for its current one).
// Nothing ambient is read.
func Open(kubeconfig, kubeContext string) (*Cluster, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: kubeContext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %q: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = 200, 400
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	transport.Timeout = 0
	return &Cluster{Client: c, config: config, http: transport}, nil
}

// Apply server-side applies every document of a manifest. A refusal by a webhook
// is the API server's error as it came.
func (c *Cluster) Apply(ctx context.Context, namespace, manifest string) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 4096)
	for {
		var u unstructured.Unstructured
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if u.GetNamespace() == "" {
			u.SetNamespace(namespace)
		}
		if err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(&u), client.FieldOwner("user"), client.ForceOwnership); err != nil {
			return err
		}
	}
}

// Pool reads a pool.
func (c *Cluster) Pool(ctx context.Context, namespace, name string) (*v1alpha1.PDPool, error) {
	var pool v1alpha1.PDPool
	err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &pool)
	return &pool, err
}

// Pods lists the engine pods of a role of a pool that are not being deleted; "" is both roles.
func (c *Cluster) Pods(ctx context.Context, namespace, pool, role string) ([]corev1.Pod, error) {
	var list corev1.PodList
	want := client.MatchingLabels{v1alpha1.LabelPool: pool}
	if role != "" {
		want[v1alpha1.LabelRole] = role
	}
	if err := c.List(ctx, &list, client.InNamespace(namespace), want); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for _, p := range list.Items {
		engine := p.Labels[v1alpha1.LabelRole] != v1alpha1.RoleRouter
		if engine && p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// Request sends a request to a Service or pod through the API server's proxy.
// The caller closes the body. target is "services/NAME:PORT" or "pods/NAME:PORT"; with
// Reach also "http://ADDRESS:PORT" of a pod or Service, past the API server.
func (c *Cluster) Request(ctx context.Context, namespace, target, method, path string, body []byte) (*http.Response, error) {
	sender, url := c.http, c.config.Host+"/api/v1/namespaces/"+namespace+"/"+target+"/proxy"+path
	if strings.HasPrefix(target, "http://") {
		if c.machine == nil {
			return nil, ErrNoMachine
		}
		sender, url = c.machine.HTTP(), target+path
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	return sender.Do(request)
}

// GetJSON asks a pod for a JSON document.
func (c *Cluster) GetJSON(ctx context.Context, namespace, pod string, port int, path string, into any) error {
	response, err := c.Request(ctx, namespace, fmt.Sprintf("pods/%s:%d", pod, port), http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", path, pod, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: status %d: %.300s", path, pod, response.StatusCode, text)
	}
	return json.Unmarshal(text, into)
}

// Poll calls check until it returns nil, and fails with its last error when within has passed.
func Poll(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", within, err)
		case <-tick.C:
		}
	}
}

// WaitReady waits until a pool's status is for its generation and Ready is True.
func (c *Cluster) WaitReady(ctx context.Context, namespace, name string, within time.Duration) error {
	return Poll(ctx, within, func(ctx context.Context) error {
		pool, err := c.Pool(ctx, namespace, name)
		if err != nil {
			return err
		}
		if pool.Status.ObservedGeneration != pool.Generation {
			return fmt.Errorf("pool %s: generation %d is not observed yet", name, pool.Generation)
		}
		for _, condition := range pool.Status.Conditions {
			if condition.Type == v1alpha1.ConditionReady {
				if condition.Status == "True" {
					return nil
				}
				return fmt.Errorf("pool %s is not ready: %s: %s", name, condition.Reason, condition.Message)
			}
		}
		return fmt.Errorf("pool %s has no condition yet", name)
	})
}

// WaitGone waits until nothing of the kind of obj has its name.
func (c *Cluster) WaitGone(ctx context.Context, obj client.Object, within time.Duration) error {
	return Poll(ctx, within, func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%s is still there", obj.GetName())
	})
}
