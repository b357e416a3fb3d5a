package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	firstRenderNode = 128 // the first minor number of DRM render nodes
	pollInterval    = 250 * time.Millisecond
)

// plugin implements the kubelet's device plugin API for devices gpu0 to gpuN-1.
type plugin struct {
	api.UnimplementedDevicePluginServer
	count     int
	unhealthy string // file with the names of unhealthy devices
}

func newPlugin(count int, unhealthy string) *plugin {
	return &plugin{count: count, unhealthy: unhealthy}
}

func options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions says that the plugin has preferred allocations.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch sends all devices at once and again whenever one's health changes.
func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	last, sent := "", false
	for {
		text, _ := os.ReadFile(p.unhealthy) // no file: all are healthy
		if !sent || string(text) != last {
			last, sent = string(text), true
			if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices(last)}); err != nil {
				return err
			}
			log.Printf("unhealthy: %q", last)
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// devices lists every device, those named in unhealthy as such.
func (p *plugin) devices(unhealthy string) []*api.Device {
	bad := strings.Fields(unhealthy)
	all := make([]*api.Device, 0, p.count)
	for i := range p.count {
		d := &api.Device{
			ID:       "gpu" + strconv.Itoa(i),
			Health:   api.Healthy,
			Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 0}}},
		}
		if slices.Contains(bad, d.ID) {
			d.Health = api.Unhealthy
		}
		all = append(all, d)
	}
	return all
}

// GetPreferredAllocation picks the free devices with the lowest numbers.
func (p *plugin) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	out := &api.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids := preferred(c.MustIncludeDeviceIDs, c.AvailableDeviceIDs, int(c.AllocationSize))
		out.ContainerResponses = append(out.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// preferred adds the lowest of available to must until there are size.
func preferred(must, available []string, size int) []string {
	ids := slices.Clone(must)
	rest := slices.Clone(available)
	slices.SortFunc(rest, func(a, b string) int { return number(a) - number(b) })
	for _, id := range rest {
		if len(ids) < size && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// number is N of the device gpuN.
func number(id string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(id, "gpu"))
	return n
}

// Allocate gives each container the device files and names of its devices.
func (p *plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	out := &api.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		ids := slices.Clone(c.DevicesIds)
		slices.SortFunc(ids, func(a, b string) int { return number(a) - number(b) })
		res := &api.ContainerAllocateResponse{
			Envs:    map[string]string{"SIMULATED_AMD_GPUS": strings.Join(ids, ",")},
			Devices: []*api.DeviceSpec{nullDevice("/dev/kfd")},
		}
		for _, id := range ids {
			n := number(id)
			res.Devices = append(res.Devices,
				nullDevice(fmt.Sprintf("/dev/dri/card%d", n)),
				nullDevice(fmt.Sprintf("/dev/dri/renderD%d", firstRenderNode+n)))
		}
		out.ContainerResponses = append(out.ContainerResponses, res)
		log.Printf("allocated %v", ids)
	}
	return out, nil
}

// nullDevice shows the node's /dev/null to a container as path.
func nullDevice(path string) *api.DeviceSpec {
	return &api.DeviceSpec{HostPath: "/dev/null", ContainerPath: path, Permissions: "rw"}
}

// PreStartContainer has nothing to do: the options do not ask for it.
func (p *plugin) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}
