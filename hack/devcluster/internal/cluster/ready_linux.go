package cluster

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pdpool/pdpool/hack/devcluster/internal/builder"
	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
)

//go:embed manifests/*.yaml
var manifests embed.FS

const (
	stepTimeout = 3 * time.Minute
	logTail     = 8 // lines of each log that a failure shows
	maxCrashes  = 10
)

// step is something that a starting cluster comes to.
type step struct {
	what string
	ok   func(context.Context) bool
	logs []string // that tell why it did not
}

// waitReady deploys what every cluster has and waits for each step.
func (c *Cluster) waitReady(ctx context.Context, ended <-chan error, printf func(string, ...any)) error {
	a, err := c.newAPI()
	if err != nil {
		return err
	}
	control := []string{"supervisor", "network", "kube-apiserver", "etcd"}
	var nodeLogs []string
	for n := 1; n <= min(c.Nodes, 2); n++ {
		nodeLogs = append(nodeLogs, nodeName(n), nodeName(n)+"-containerd", nodeName(n)+"-kubelet")
	}
	steps := []step{
		{"API server", a.ready, control},
		{"default service account", a.exists("/api/v1/namespaces/default/serviceaccounts/default"), []string{"kube-controller-manager"}},
	}
	if err := c.waitSteps(ctx, ended, printf, steps); err != nil {
		return err
	}
	if c.Nodes == 0 {
		return nil
	}
	if err := c.deploy(ctx); err != nil {
		return err
	}
	steps = []step{
		{Count(c.Nodes, "node") + " ready", c.nodesReady(a), append([]string{"supervisor", "network"}, nodeLogs...)},
		{"DNS", a.dnsReady, append([]string{"kube-controller-manager", "kube-scheduler"}, nodeLogs...)},
	}
	if c.GPUs > 0 {
		steps = append(steps, step{Count(c.GPUs, "GPU") + " allocatable on each node", c.gpusReady(a), nodeLogs})
	}
	return c.waitSteps(ctx, ended, printf, steps)
}

// waitSteps waits for the steps one after the other and says how long each took.
func (c *Cluster) waitSteps(ctx context.Context, ended <-chan error, printf func(string, ...any), steps []step) error {
	for _, s := range steps {
		start := time.Now()
		for !s.ok(ctx) {
			var err error
			select {
			case <-ctx.Done():
				return errors.New("interrupted: it is removed again")
			case err = <-ended:
				err = fmt.Errorf("the supervisor ended: %w", errors.Join(err))
			case <-time.After(100 * time.Millisecond):
				if time.Since(start) > stepTimeout {
					err = fmt.Errorf("not there after %s", stepTimeout)
				} else if c.crashes() > maxCrashes {
					err = errors.New("its parts end again and again")
				}
			}
			if err != nil {
				return fmt.Errorf("the cluster did not start: %s: %w%s", s.what, err, c.logTails(s.logs))
			}
		}
		printf("  %-32s %5.1f s", s.what, time.Since(start).Seconds())
	}
	return nil
}

// crashes counts the ends of parts that the supervisor and the nodes logged.
func (c *Cluster) crashes() int {
	count := 0
	for n := 0; n <= c.Nodes; n++ {
		log := nodeName(n)
		if n == 0 {
			log = "supervisor"
		}
		b, _ := os.ReadFile(c.path("logs", log+".log"))
		count += bytes.Count(b, []byte(" ended: "))
	}
	return count
}

func (c *Cluster) logTails(names []string) string {
	var text strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(c.path("logs", name+".log"))
		if err != nil || len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(&text, "\n--- end of %s.log\n%s", name, host.Tail(string(b), logTail))
	}
	return text.String()
}

// deploy applies the manifests of DNS and of the simulated device plugin.
func (c *Cluster) deploy(ctx context.Context) error {
	names := []string{"coredns"}
	if c.GPUs > 0 {
		names = append(names, "gpuplugin")
	}
	replace := strings.NewReplacer(
		"${DNS_IP}", dnsIP,
		"${COREDNS_IMAGE}", builder.CoreDNSImage,
		"${GPUPLUGIN_IMAGE}", builder.GPUPluginImage,
		"${GPUS}", strconv.Itoa(c.GPUs),
	)
	var all bytes.Buffer
	for _, name := range names {
		b, err := manifests.ReadFile("manifests/" + name + ".yaml")
		if err != nil {
			return err
		}
		all.WriteString("---\n" + replace.Replace(string(b)))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, "kubectl"), "--kubeconfig", c.Kubeconfig(),
		"apply", "--server-side", "--validate=false", "-f", "-")
	cmd.Stdin = &all
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot deploy DNS and the device plugin: %w\n%s", err, host.Tail(string(out), logTail))
	}
	return nil
}

func (c *Cluster) nodesReady(a *api) func(context.Context) bool {
	return func(ctx context.Context) bool {
		nodes, err := a.nodes(ctx)
		ready := 0
		for _, n := range nodes {
			if n.ready() {
				ready++
			}
		}
		return err == nil && ready == c.Nodes
	}
}

func (c *Cluster) gpusReady(a *api) func(context.Context) bool {
	return func(ctx context.Context) bool {
		nodes, err := a.nodes(ctx)
		for _, n := range nodes {
			if n.allocatableGPUs() != strconv.Itoa(c.GPUs) {
				return false
			}
		}
		return err == nil
	}
}
