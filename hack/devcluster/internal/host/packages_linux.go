// Package host is what devcluster needs from and changes on the machine: Debian
// packages, cgroups, kernel settings and the identity of processes.
package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Path is the PATH of everything that runs in a cluster.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// CNIDir is where Debian's package puts the CNI plugins.
const CNIDir = "/usr/lib/cni"

// tools maps what a cluster runs from the machine to the Debian package with it.
var tools = []struct{ file, pkg string }{
	{"runc", "runc"},
	{CNIDir + "/ptp", "containernetworking-plugins"},
	{CNIDir + "/portmap", "containernetworking-plugins"},
	{"nft", "nftables"},
	{"iptables", "iptables"},
	{"ip", "iproute2"},
	{"mount", "mount"},
	{"nsenter", "util-linux"},
}

// MissingPackages returns the Debian packages that a cluster needs and the machine lacks.
func MissingPackages() []string {
	var missing []string
	for _, t := range tools {
		if !slices.Contains(missing, t.pkg) && !installed(t.file) {
			missing = append(missing, t.pkg)
		}
	}
	return missing
}

// installed says whether a file exists, a bare name in one of the folders of Path.
func installed(file string) bool {
	folders := strings.Split(Path, ":")
	if filepath.IsAbs(file) {
		folders = []string{"/"}
	}
	return slices.ContainsFunc(folders, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, file))
		return err == nil
	})
}

// InstallPackages installs what MissingPackages returns by apt-get and says so.
func InstallPackages(ctx context.Context, progress io.Writer) error {
	missing := MissingPackages()
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this machine lacks what these Debian packages hold and has no apt-get: %s: install their counterparts", names)
	}
	_, _ = fmt.Fprintf(progress, "installing the Debian packages %s\n", names)
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update", "-q"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // dpkg ends its step
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot install the Debian packages %s: apt-get %s: %w\n%s", names, args[0], err, Tail(string(out), 10))
		}
	}
	if missing := MissingPackages(); len(missing) > 0 {
		return fmt.Errorf("something of the Debian packages %s is still missing after their installation", strings.Join(missing, " "))
	}
	return nil
}

// Tail returns the last n lines of text.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
