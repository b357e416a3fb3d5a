package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// Devices says whether the nodes have the GPUs of a pool.
type Devices struct {
	Available bool       `json:"available"`
	Message   string     `json:"message"`
	Fit       pdpool.Fit `json:"fit"`
}

// askTime bounds a question to the cluster.
const askTime = "--request-timeout=30s"

// inventory is how to ask whether there are GPUs; nil where nobody wants to know.
func (o Options) inventory(ctx context.Context, f checkFlags) (func(*v1alpha1.PDPool) *Devices, error) {
	stock := cluster{namespace: corev1.NamespaceDefault}
	switch {
	case f.nodes != "":
		src, err := o.sources(f.nodes)
		if err != nil {
			return nil, err
		}
		for _, s := range src {
			if err := stock.read(bytes.NewReader(s.text)); err != nil {
				return nil, fmt.Errorf("read the nodes of %s: %w", s.name, err)
			}
		}
		if len(stock.nodes) == 0 {
			return nil, fmt.Errorf("%s holds no nodes: give what `kubectl get nodes -o yaml` prints", f.nodes)
		}
	case f.cluster:
		if err := o.askCluster(ctx, f, &stock); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	inventory := pdpool.NewInventory(stock.nodes, stock.pods, o.Now())
	return func(pool *v1alpha1.PDPool) *Devices {
		// Where kubectl apply would put it, its pods may be already: they hold devices
		// for it, and not against it.
		there := *pool
		there.Namespace = cmp.Or(pool.Namespace, stock.namespace)
		fit := inventory.Fit(&there)
		return &Devices{Available: fit.All(), Message: fit.String(), Fit: fit}
	}, nil
}

// askCluster reads nodes, the pods that hold devices, and the namespace of the context.
func (o Options) askCluster(ctx context.Context, f checkFlags, into *cluster) error {
	var connection []string
	for _, flag := range []struct{ name, value string }{{"--context", f.context}, {"--kubeconfig", f.kubeconfig}} {
		if flag.value != "" {
			connection = append(connection, flag.name, flag.value)
		}
	}
	// Without a kubeconfig, as in a pod, there is no context and so no namespace of one.
	if answer, err := o.Kubectl(ctx, append([]string{"config", "view", "--minify", "-o", "jsonpath={..namespace}"}, connection...)...); err == nil {
		into.namespace = cmp.Or(string(bytes.TrimSpace(answer)), into.namespace)
	}
	for _, question := range [][]string{
		{"get", "nodes", "-o", "json", askTime},
		{"get", "pods", "--all-namespaces", "-o", "json", "--field-selector=status.phase!=Succeeded,status.phase!=Failed", askTime},
	} {
		answer, err := o.Kubectl(ctx, append(question, connection...)...)
		if err != nil {
			return err
		}
		if err := into.read(bytes.NewReader(answer)); err != nil {
			return fmt.Errorf("read what kubectl %s %s says: %w", question[0], question[1], err)
		}
	}
	return nil
}

// cluster is what lists of nodes and pods hold.
type cluster struct {
	nodes []corev1.Node
	pods  []corev1.Pod
	// namespace is that of pools which name none.
	namespace string
}

// read takes all nodes and pods of a stream of YAML or JSON.
func (c *cluster) read(r io.Reader) error {
	documents := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		var raw json.RawMessage
		switch err := documents.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := c.object(raw, ""); err != nil {
			return err
		}
	}
}

// object takes an object; those of a typed list say no kind of their own.
func (c *cluster) object(raw json.RawMessage, kind string) error {
	var head struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	if head.Kind == "" {
		head.Kind = kind
	}
	switch head.Kind {
	case "Node":
		var n corev1.Node
		if err := json.Unmarshal(raw, &n); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	case "Pod":
		var p corev1.Pod
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		c.pods = append(c.pods, p)
	case "List", "NodeList", "PodList":
		inner := map[string]string{"NodeList": "Node", "PodList": "Pod"}[head.Kind]
		for _, item := range head.Items {
			if err := c.object(item, inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *page) devices(d Devices) {
	word, colour := "gpus", green
	if !d.Available {
		word, colour = "gpus lack", yellow
	}
	p.printf("  %s  %s\n", p.paint(colour, word), d.Message)
}
