//go:build !linux

package cli

import (
	"context"
	"fmt"
	"runtime"
)

// run says that there is nothing to do here: nodes are made of Linux namespaces.
func run(context.Context, []string) error {
	return fmt.Errorf("nodes are made of Linux namespaces and this is %s: use a Linux machine or a virtual one", runtime.GOOS)
}
