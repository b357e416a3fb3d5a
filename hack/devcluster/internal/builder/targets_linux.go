package builder

// target is one run of "go build": the packages of a module with the same flags.
type target struct {
	module   string // folder below hack/devcluster
	flags    []string
	packages []string
	binaries []string
	about    string // how many packages a build from empty caches compiles, for progress
}

const kubernetesVersion = "v1.37.2"

// lean leaves out debugging information and inlining, which makes the build of
// Kubernetes' 3,000 packages a third shorter.
const lean = "-gcflags=all=-dwarf=false -l"

// targets are all binaries, that for envtest first.
var targets = []target{
	{
		module: "kube",
		flags: []string{lean, "-ldflags=-s -w" +
			" -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=1" +
			" -X k8s.io/component-base/version.gitMinor=37" +
			" -X k8s.io/component-base/version.gitTreeState=clean" +
			" -X k8s.io/client-go/pkg/version.gitVersion=" + kubernetesVersion},
		packages: []string{"./cmd/kube"},
		binaries: []string{"kube"},
		about:    "2900",
	},
	{
		module:   "kube",
		flags:    []string{lean, "-ldflags=-s -w"},
		packages: []string{"./cmd/gpuplugin"},
		binaries: []string{"gpuplugin"},
		about:    "10",
	},
	{
		module: "node",
		flags:  []string{"-tags=no_btrfs no_zfs no_devmapper", "-ldflags=-s -w"},
		packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
			"./cmd/coredns",
		},
		binaries: []string{"containerd", "containerd-shim-runc-v2", "ctr", "coredns"},
		about:    "1500",
	},
	{
		module:   ".",
		flags:    []string{"-ldflags=-s -w"},
		packages: []string{"./cmd/pause"},
		binaries: []string{"pause"},
		about:    "1",
	},
}
