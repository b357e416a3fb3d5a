package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// api asks the API server as the administrator. It knows only what devcluster needs,
// so that this program builds in a second and without Kubernetes' client.
type api struct {
	server string
	client *http.Client
}

func (c *Cluster) newAPI() (*api, error) {
	cert, err := tls.LoadX509KeyPair(c.pki("admin.crt"), c.pki("admin.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster's certificate authority cannot be read")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return &api{
		server: fmt.Sprintf("https://127.0.0.1:%d", c.Port),
		client: &http.Client{Transport: transport, Timeout: 5 * time.Second},
	}, nil
}

// get reads a path of the API server into v.
func (a *api) get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server+path, nil)
	if err != nil {
		return err
	}
	res, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server answered %s to %s", res.Status, path)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(b, v)
}

func (a *api) ready(ctx context.Context) bool { return a.get(ctx, "/readyz", nil) == nil }

func (a *api) exists(path string) func(context.Context) bool {
	return func(ctx context.Context) bool { return a.get(ctx, path, nil) == nil }
}

func (a *api) dnsReady(ctx context.Context) bool {
	var deployment struct {
		Status struct{ AvailableReplicas int }
	}
	err := a.get(ctx, "/apis/apps/v1/namespaces/kube-system/deployments/coredns", &deployment)
	return err == nil && deployment.Status.AvailableReplicas > 0
}

// node is what devcluster reads of a Node.
type node struct {
	Metadata struct{ Name string }
	Status   struct {
		Conditions []struct {
			Type, Status      string
			LastHeartbeatTime time.Time
		}
		Allocatable map[string]string
	}
}

// readySince says whether the node is ready by a report from t or later.
func (n node) readySince(t time.Time) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True" && !c.LastHeartbeatTime.Before(t)
		}
	}
	return false
}

func (n node) ready() bool { return n.readySince(time.Time{}) }

func (n node) allocatableGPUs() string {
	if gpus, ok := n.Status.Allocatable["amd.com/gpu"]; ok {
		return gpus
	}
	return "0"
}

func (a *api) nodes(ctx context.Context) ([]node, error) {
	var list struct{ Items []node }
	err := a.get(ctx, "/api/v1/nodes", &list)
	return list.Items, err
}

func (a *api) node(ctx context.Context, name string) (node, error) {
	var n node
	err := a.get(ctx, "/api/v1/nodes/"+name, &n)
	return n, err
}
