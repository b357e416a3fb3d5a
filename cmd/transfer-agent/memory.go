package main

import (
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// limitMemory has the runtime collect garbage before it reaches the container's limit,
// of which it leaves a tenth to what it does not count: stacks of the system, page
// tables of the engine's memory. Without a limit nothing changes.
func limitMemory(bytes string) error {
	if bytes == "" {
		return nil
	}
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("%s is %.40q, it must be a number of bytes above 0", agentconfig.EnvMemoryLimit, bytes)
	}
	debug.SetMemoryLimit(n / 10 * 9)
	return nil
}
