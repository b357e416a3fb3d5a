package main

import (
	"fmt"
	"runtime/debug"
	"strconv"
)

// envMemoryLimit has the memory limit of the container, in bytes. Unset, there is none.
const envMemoryLimit = "PDPOOL_MEMORY_LIMIT"

// limitMemory has the garbage collector work harder before the kernel ends the
// process: what is beside the heap gets a tenth of the limit.
func limitMemory(bytes string) error {
	if bytes == "" {
		return nil
	}
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil || n <= 0 {
		return fmt.Errorf("%s is %q, which is no number of bytes", envMemoryLimit, bytes)
	}
	debug.SetMemoryLimit(n / 10 * 9)
	return nil
}
