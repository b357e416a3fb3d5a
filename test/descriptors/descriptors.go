// Package descriptors counts what a test leaves open.
package descriptors

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Open is the number of files, sockets and pieces of memory that this process has open.
// The poller of Go's runtime, which comes up with the first socket of the process, does not
// count, nor do other descriptors without an inode.
func Open(t testing.TB) int {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		// The one of this listing is closed by now.
		if at, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && !strings.HasPrefix(at, "anon_inode:") {
			n++
		}
	}
	return n
}
