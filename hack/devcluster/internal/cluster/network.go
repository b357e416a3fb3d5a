package cluster

import "fmt"

// The addresses of a cluster. They exist only in its own network namespaces, so
// that every cluster of a machine has the same ones and none is known outside.
const (
	bridge       = "dc0"
	hostNet      = "10.89.0"
	controlPlane = hostNet + ".1" // the bridge; node N is 10.89.0.(10+N)
	podCIDR      = "10.244.0.0/16"
	serviceCIDR  = "10.96.0.0/16"
	apiServiceIP = "10.96.0.1"
	dnsIP        = "10.96.0.10"
)

func nodeIP(n int) string { return fmt.Sprintf("%s.%d", hostNet, 10+n) }

func nodePodCIDR(n int) string { return fmt.Sprintf("10.244.%d.0/24", n) }

// Count is a number with its noun, such as "1 node" or "2 nodes".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
