package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sysctls are the kernel settings that kubelets change for the whole machine.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom",
	"kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// SaveSysctls writes the machine's settings to the file, unless that exists: it
// then holds those from before another cluster.
func SaveSysctls(file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	values := map[string]string{}
	for _, name := range sysctls {
		if b, err := os.ReadFile("/proc/sys/" + name); err == nil { // some kernels lack some
			values[name] = strings.TrimSpace(string(b))
		}
	}
	b, err := json.MarshalIndent(values, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(file, b)
}

// RestoreSysctls puts the settings of the file back and removes it.
func RestoreSysctls(file string) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	values := map[string]string{}
	if err := json.Unmarshal(b, &values); err != nil {
		return fmt.Errorf("cannot read the saved kernel settings in %s: %w", file, err)
	}
	for name, value := range values {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("cannot put the kernel setting %s back to %s: %w", name, value, err)
		}
	}
	return os.Remove(file)
}

// WriteFile writes a file whole or not at all, readable by its owner only.
func WriteFile(name string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return os.Rename(tmp.Name(), name)
}
