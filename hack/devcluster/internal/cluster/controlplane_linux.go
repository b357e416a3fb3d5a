package cluster

import (
	"os"
	"path/filepath"

	"github.com/pdpool/pdpool/hack/devcluster/internal/reaper"
)

// featureGates turn native gang scheduling on.
const featureGates = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"

// auditPolicy logs every request once, without its body.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// startControlPlane runs etcd, the API server, the controller manager and the
// scheduler, which all try again until what they need answers.
func (c *Cluster) startControlPlane(r *reaper.Reaper) error {
	if err := os.WriteFile(c.path("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	for _, component := range []struct {
		name  string
		flags []string
	}{
		{"etcd", c.etcdFlags()},
		{"kube-apiserver", c.apiServerFlags()},
		{"kube-controller-manager", c.controllerManagerFlags()},
		{"kube-scheduler", c.schedulerFlags()},
	} {
		r.Keep(component.name, append([]string{filepath.Join(c.Bin, "kube"), component.name}, component.flags...)...)
	}
	return nil
}

func (c *Cluster) pki(file string) string { return c.path("pki", file) }

func (c *Cluster) etcdFlags() []string {
	return []string{
		"--data-dir=" + c.path("etcd"),
		"--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380",
		"--log-level=warn",
	}
}

func (c *Cluster) apiServerFlags() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address=" + controlPlane,
		"--bind-address=0.0.0.0",
		"--secure-port=6443",
		"--tls-cert-file=" + c.pki("apiserver.crt"),
		"--tls-private-key-file=" + c.pki("apiserver.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("service-account.crt"),
		"--service-account-signing-key-file=" + c.pki("service-account.key"),
		"--kubelet-client-certificate=" + c.pki("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + c.pki("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + c.pki("ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("front-proxy.crt"),
		"--proxy-client-key-file=" + c.pki("front-proxy.key"),
		// Webhooks are called by their pods' addresses: there is no kube-proxy here.
		"--enable-aggregator-routing=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceCIDR,
		// Pods leave a dead node after 20 seconds, not five minutes.
		"--default-not-ready-toleration-seconds=20",
		"--default-unreachable-toleration-seconds=20",
		"--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
		"--feature-gates=" + featureGates,
		"--audit-policy-file=" + c.path("audit-policy.yaml"),
		"--audit-log-path=" + c.path("audit.log"),
	}
}

func (c *Cluster) controllerManagerFlags() []string {
	return []string{
		"--kubeconfig=" + c.insideKubeconfig("controller-manager"),
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		// With the default rate the default ServiceAccount comes six seconds later.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--root-ca-file=" + c.pki("ca.crt"),
		"--service-account-private-key-file=" + c.pki("service-account.key"),
		"--cluster-signing-cert-file=" + c.pki("ca.crt"),
		"--cluster-signing-key-file=" + c.pki("ca.key"),
		// The default folder would be made in the host's /usr.
		"--flex-volume-plugin-dir=" + c.path("flexvolume"),
		"--node-monitor-period=2s",
		"--node-monitor-grace-period=16s",
		"--feature-gates=" + featureGates,
	}
}

func (c *Cluster) schedulerFlags() []string {
	return []string{
		"--kubeconfig=" + c.insideKubeconfig("scheduler"),
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--feature-gates=" + featureGates,
	}
}
