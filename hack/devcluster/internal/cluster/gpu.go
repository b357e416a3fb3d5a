package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// gpuProperties are what AMD's node labeller finds on a node with the MI300X.
var gpuProperties = [][2]string{
	{"device-id", "74a1"},
	{"product-name", "AMD_Instinct_MI300X_OAM"},
	{"vram", "192G"},
	{"cu-count", "304"},
	{"simd-count", "1216"},
	{"family", "AI"},
}

// gpuLabels are the labels of a node with that many GPUs, as K=V,...: those that AMD's
// labeller sets, under both of its prefixes, and its counts by value under the older.
func gpuLabels(gpus int) string {
	if gpus == 0 {
		return ""
	}
	var labels []string
	for _, p := range gpuProperties {
		labels = append(labels,
			fmt.Sprintf("amd.com/gpu.%s=%s", p[0], p[1]),
			fmt.Sprintf("beta.amd.com/gpu.%s=%s", p[0], p[1]),
			fmt.Sprintf("beta.amd.com/gpu.%s.%s=%d", p[0], p[1], gpus))
	}
	return strings.Join(labels, ",")
}

// parseGPUs reads GPUs of a node given as gpu3 or 3, of which there are count.
func parseGPUs(args []string, count int) ([]string, error) {
	if count == 0 {
		return nil, fmt.Errorf("the cluster has no GPUs: start one by up --gpus 8")
	}
	var ids []string
	for _, arg := range args {
		n, err := strconv.Atoi(strings.TrimPrefix(arg, "gpu"))
		if err != nil || n < 0 || n >= count {
			return nil, fmt.Errorf("there is no GPU %s: a node has gpu0 to gpu%d", arg, count-1)
		}
		ids = append(ids, "gpu"+strconv.Itoa(n))
	}
	return ids, nil
}

// changeHealth returns the unhealthy GPUs after some more of old have become so or,
// when healthy, are so no longer. No ids stand for all of old then.
func changeHealth(old, ids []string, healthy bool) []string {
	if !healthy {
		all := slices.Concat(old, ids)
		slices.Sort(all)
		return slices.Compact(all)
	}
	if len(ids) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(old), func(id string) bool { return slices.Contains(ids, id) })
}
