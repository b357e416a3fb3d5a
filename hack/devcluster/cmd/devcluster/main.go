// Command devcluster runs a real Kubernetes cluster of several nodes on one Linux
// machine, without a container engine and without an image registry.
package main

import (
	"os"

	"github.com/pdpool/pdpool/hack/devcluster/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
