package main

import (
	"context"
	"slices"
	"testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestDevicesFollowTheUnhealthyOnes(t *testing.T) {
	got := newPlugin(3, "").devices("gpu1\ngpu9")
	if len(got) != 3 {
		t.Fatalf("got %d devices, want 3", len(got))
	}
	for i, want := range []string{api.Healthy, api.Unhealthy, api.Healthy} {
		if got[i].Health != want {
			t.Errorf("%s is %s, want %s", got[i].ID, got[i].Health, want)
		}
	}
}

func TestPreferredIsTheLowest(t *testing.T) {
	got := preferred([]string{"gpu7"}, []string{"gpu10", "gpu2", "gpu7", "gpu1"}, 3)
	if want := []string{"gpu7", "gpu1", "gpu2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAllocateGivesFilesAndNames(t *testing.T) {
	res, err := newPlugin(8, "").Allocate(context.Background(), &api.AllocateRequest{
		ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"gpu3", "gpu0"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := res.ContainerResponses[0]
	if got := c.Envs["SIMULATED_AMD_GPUS"]; got != "gpu0,gpu3" {
		t.Errorf("got the names %s", got)
	}
	var paths []string
	for _, d := range c.Devices {
		paths = append(paths, d.ContainerPath)
	}
	want := []string{"/dev/kfd", "/dev/dri/card0", "/dev/dri/renderD128", "/dev/dri/card3", "/dev/dri/renderD131"}
	if !slices.Equal(paths, want) {
		t.Errorf("got the files %v, want %v", paths, want)
	}
}
