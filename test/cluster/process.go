package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// processes finds the processes of a pod with that name. Those of the nodes are this
// machine's too.
func processes(pod *corev1.Pod, name string) ([]int, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, folder := range folders {
		comm, err := os.ReadFile(filepath.Join(folder, "comm"))
		if err != nil || string(bytes.TrimSpace(comm)) != name {
			continue
		}
		groups, err := os.ReadFile(filepath.Join(folder, "cgroup"))
		if err != nil || !bytes.Contains(groups, []byte("/pod"+string(pod.UID)+"/")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			return nil, err
		}
		out = append(out, pid)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("pod %s has no process %s", pod.Name, name)
	}
	return out, nil
}

// Signal sends a signal to the processes of a pod with that name, and to nothing else
// of the pod. That there is none is an error.
func (m *Machine) Signal(pod *corev1.Pod, process string, signal syscall.Signal) error {
	pids, err := processes(pod, process)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil {
			return fmt.Errorf("send %s to %s of pod %s: %w", signal, process, pod.Name, err)
		}
	}
	return nil
}

// Memory is the memory of a container in bytes, as its cgroup counts it: page cache
// and what the kernel keeps for it included.
type Memory struct {
	Now, Peak, Limit int64
	OOMKills         int64
}

// cgroupFiles are the files of Memory's fields in both versions of cgroups.
var cgroupFiles = map[bool][3]string{
	true:  {"memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes"},
	false: {"memory.current", "memory.peak", "memory.max"},
}

// Memory reads the cgroup of a pod's process with that name.
func (m *Machine) Memory(pod *corev1.Pod, process string) (Memory, error) {
	var out Memory
	pids, err := processes(pod, process)
	if err != nil {
		return out, err
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pids[0]))
	if err != nil {
		return out, err
	}
	folder, first := "", false
	for line := range strings.Lines(string(groups)) {
		switch parts := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case len(parts) < 3:
		case parts[1] == "memory":
			folder, first = "/sys/fs/cgroup/memory"+parts[2], true
		case parts[1] == "" && !first:
			folder = "/sys/fs/cgroup" + parts[2]
		}
	}
	for i, into := range []*int64{&out.Now, &out.Peak, &out.Limit} {
		if *into, err = number(filepath.Join(folder, cgroupFiles[first][i])); err != nil {
			return out, err
		}
	}
	events := "memory.events"
	if first {
		events = "memory.oom_control"
	}
	text, err := os.ReadFile(filepath.Join(folder, events))
	if err != nil {
		return out, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			if out.OOMKills, err = strconv.ParseInt(strings.TrimSpace(n), 10, 64); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// number reads a file with one number; "max" is no limit, which is 0 here.
func number(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return 0, nil
	}
	return strconv.ParseInt(word, 10, 64)
}

// Descriptors is how many file descriptors a pod's process with that name has open.
func (m *Machine) Descriptors(pod *corev1.Pod, process string) (float64, error) {
	pids, err := processes(pod, process)
	if err != nil {
		return 0, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pids[0]))
	return float64(len(open)), err
}
