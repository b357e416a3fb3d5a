// Package memlimit keeps a process below the memory limit of its container.
package memlimit

import (
	"fmt"
	"runtime/debug"
	"strconv"
)

// Env names the variable with the container's memory limit in bytes; Kubernetes sets it
// by resourceFieldRef.
const Env = "PDPOOL_MEMORY_LIMIT"

// Parse reads the value of Env; 0 when it is empty: there is no limit.
func Parse(bytes string) (int64, error) {
	if bytes == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s is %.40q, it must be a number of bytes above 0", Env, bytes)
	}
	return n, nil
}

// Apply has the runtime collect garbage before it reaches the limit, of which it leaves
// a tenth to what it does not count: stacks of the system, page tables of mapped
// memory. Without a limit nothing changes.
func Apply(bytes string) error {
	n, err := Parse(bytes)
	if err == nil && n > 0 {
		debug.SetMemoryLimit(n / 10 * 9)
	}
	return err
}
