package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pdpool/pdpool/hack/devcluster/internal/builder"
	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
)

// nodeFile is the path of a configuration file on a node.
func nodeFile(name string) string { return filepath.Join("/run/devcluster", name) }

// writeNodeFiles writes what the daemons of node n read, on that node.
func (c *Cluster) writeNodeFiles(n int) error {
	files := map[string]string{
		"containerd.toml":            containerdConfig(),
		"cni/10-devcluster.conflist": cniConfig(n),
		"resolv.conf":                "nameserver 127.0.0.1\n",
		"kubelet.yaml":               c.kubeletConfig(n),
		"kube-proxy.yaml":            c.proxyConfig(),
	}
	for name, text := range files {
		path := nodeFile(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// containerdConfig has a second runtime for tests of RuntimeClasses. Without
// restrict_oom_score_adj no sandbox starts where CAP_SYS_RESOURCE is missing.
func containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.nri.v1.nri",
]
[grpc]
  address = %q
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = false
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.second]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.second.options]
        SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
`, containerdSocket, builder.PauseImage, host.CNIDir, nodeFile("cni"))
}

// cniConfig routes each pod by a pair of interfaces of its own. With a bridge, the
// answer of a pod to another of the same node would go around the translation of
// the Service's address.
func cniConfig(n int) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "devcluster",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "mtu": 1500,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        "routes": [{"dst": "0.0.0.0/0"}],
        "ranges": [[{"subnet": %q}]]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, nodePodCIDR(n))
}

// kubeletConfig never lets the kubelet remove an image, as no registry has it, nor
// evict a pod because the machine's disk is full. A container that tests kill again and
// again starts anew within two seconds, not five minutes.
func (c *Cluster) kubeletConfig(n int) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [%s]
resolvConf: %s
healthzBindAddress: 127.0.0.1
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 1m
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "64Mi", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
serializeImagePulls: false
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
featureGates: {GenericWorkload: true}
`, nodeIP(n), c.pki("ca.crt"), c.pki(nodeName(n)+".crt"), c.pki(nodeName(n)+".key"),
		containerdSocket, c.nodeCgroup(n), dnsIP, nodeFile("resolv.conf"))
}

// proxyConfig leaves the connection tracking limits alone: they cannot be set in a
// network namespace.
func (c *Cluster) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: %s
bindAddress: 127.0.0.1
clientConnection: {kubeconfig: %q}
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}
`, podCIDR, c.insideKubeconfig("proxy"))
}
