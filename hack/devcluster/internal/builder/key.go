package builder

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keySources are the folders and files below hack/devcluster that decide the binaries and images.
var keySources = []string{"kube", "node", "cmd/pause", "internal/builder/targets_linux.go", "internal/imagetar"}

// cacheKey is a hash of all that goes into the binaries and images: the sources in
// keySources without their tests (the flags of the builds are among them), the
// version of Go and the architecture.
func cacheKey(source, goVersion, arch string) (string, error) {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %s\n", goVersion, arch)
	for _, dir := range keySources {
		err := filepath.WalkDir(filepath.Join(source, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !isSource(d.Name()) {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(source, path)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(name), len(b))
			_, _ = sum.Write(b)
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// isSource says whether a file of that name goes into a binary.
func isSource(name string) bool {
	if strings.HasSuffix(name, "_test.go") {
		return false
	}
	return strings.HasSuffix(name, ".go") || name == "go.mod" || name == "go.sum"
}
