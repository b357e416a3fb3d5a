package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

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

// How long the cluster may take for a question's answer, as kubectl bounds it, and for
// all: what kubectl does beside, such as to log in, has no bound of its own.
const (
	askTime     = "--request-timeout=30s"
	clusterTime = 2 * time.Minute
)

// Bounds of what is read of a cluster. Kubernetes is made for less.
const (
	maxNodes    = 50_000
	maxPods     = 500_000
	maxYAML     = 32 << 20 // bytes of a document, of which the parser takes a multiple
	maxStream   = 10_000   // documents of a file
	maxListDeep = 2        // a list of lists
)

// inventory is how to ask whether there are GPUs; nil where nobody wants to know.
func (o Options) inventory(ctx context.Context, f checkFlags) (func(*v1alpha1.PDPool) *Devices, error) {
	stock := cluster{namespace: corev1.NamespaceDefault}
	switch {
	case f.nodes != "":
		in := input{from: o.In, left: maxTotal}
		all, err := files([]string{f.nodes})
		if err != nil {
			return nil, err
		}
		for _, file := range all {
			s, err := in.read(file)
			if err == nil {
				err = stock.read(s.text)
			}
			if err != nil {
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
	ctx, stop := context.WithTimeoutCause(ctx, clusterTime, fmt.Errorf("it has not ended within %v", clusterTime))
	defer stop()
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
		if err := into.read(answer); err != nil {
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

// read takes all nodes and pods of a text of YAML or JSON.
func (c *cluster) read(text []byte) error {
	if head := bytes.TrimLeft(text, " \t\r\n"); len(head) > 0 && head[0] == '{' {
		return c.stream(json.NewDecoder(bytes.NewReader(text)).Decode)
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	return c.stream(func(into any) error {
		document, err := documents.Read()
		switch {
		case err != nil:
			return err
		case len(document) > maxYAML:
			return fmt.Errorf("a document of YAML has more than %s: give what kubectl prints with -o json", size(maxYAML))
		}
		return yaml.Unmarshal(document, into)
	})
}

// stream takes the objects that a decoder yields.
func (c *cluster) stream(decode func(any) error) error {
	for n := 0; ; n++ {
		var raw json.RawMessage
		switch err := decode(&raw); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n >= maxStream:
			return fmt.Errorf("there are more than %s: give a list", count(maxStream, "document"))
		}
		if err := c.object(raw, "", 0); err != nil {
			return err
		}
	}
}

// object takes an object; those of a typed list say no kind of their own. It lies in so
// many lists.
func (c *cluster) object(raw json.RawMessage, kind string, deep int) error {
	var head struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	switch cmp.Or(head.Kind, kind) {
	case "Node":
		return c.node(raw)
	case "Pod":
		return c.pod(raw)
	case "List", "NodeList", "PodList":
	default:
		return nil
	}
	if deep >= maxListDeep {
		return fmt.Errorf("lists lie in each other more than %d deep", maxListDeep)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	inner := map[string]string{"NodeList": "Node", "PodList": "Pod"}[head.Kind]
	for _, item := range list.Items {
		if err := c.object(item, inner, deep+1); err != nil {
			return err
		}
	}
	return nil
}

// node keeps what is asked of a node.
func (c *cluster) node(raw json.RawMessage) error {
	var n corev1.Node
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	if len(c.nodes) >= maxNodes {
		return fmt.Errorf("there are more than %s", count(maxNodes, "node"))
	}
	n.ManagedFields, n.Annotations, n.Status.Images = nil, nil, nil
	c.nodes = append(c.nodes, n)
	return nil
}

// pod keeps what is asked of a pod.
func (c *cluster) pod(raw json.RawMessage) error {
	var p corev1.Pod
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if len(c.pods) >= maxPods {
		return fmt.Errorf("there are more than %s", count(maxPods, "pod"))
	}
	p.ManagedFields = nil
	c.pods = append(c.pods, p)
	return nil
}

func (p *page) devices(d Devices) {
	word, colour := "gpus", green
	if !d.Available {
		word, colour = "gpus lack", yellow
	}
	p.printf("  %s  %s\n", p.paint(colour, word), d.Message)
}
