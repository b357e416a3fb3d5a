// Command gpuplugin is a device plugin that offers simulated amd.com/gpu devices
// to the kubelet of the node it runs on.
//
// A container that gets some of them sees /dev/kfd and /dev/dri/{card,renderD}*
// (each is /dev/null in truth) and their names in SIMULATED_AMD_GPUS. Devices
// named in the file simulated-amd-gpu/unhealthy of the device plugin folder,
// separated by blanks, are reported as unhealthy until they go from it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socketName = "simulated-amd-gpu.sock"

func main() {
	resource := flag.String("resource", "amd.com/gpu", "resource name to register")
	count := flag.Int("count", 8, "number of devices")
	dir := flag.String("dir", api.DevicePluginPath, "device plugin folder of the kubelet")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for ctx.Err() == nil {
		if err := run(ctx, *resource, *count, *dir); err != nil {
			log.Printf("starting anew: %v", err)
			time.Sleep(pollInterval)
		}
	}
}

// run serves the plugin until ctx ends, or fails when the kubelet restarted: a new
// kubelet removes every socket of the folder and wants plugins to register again.
// The loss of its own socket is the only safe sign of that, as kubelet.sock can get
// the inode number that it had before.
func run(ctx context.Context, resource string, count int, dir string) error {
	state := filepath.Join(dir, "simulated-amd-gpu")
	if err := os.MkdirAll(state, 0o755); err != nil {
		return err
	}
	socket := filepath.Join(dir, socketName)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, newPlugin(count, filepath.Join(state, "unhealthy")))
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer server.Stop()

	registered := false
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if _, err := os.Stat(socket); err != nil {
			return fmt.Errorf("the kubelet restarted: %w", err)
		}
		if !registered {
			err := register(ctx, filepath.Join(dir, filepath.Base(api.KubeletSocket)), resource)
			if registered = err == nil; registered {
				log.Printf("registered %d %s", count, resource)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
		}
	}
}

// register announces the plugin's socket to the kubelet that listens on kubelet.
func register(ctx context.Context, kubelet, resource string) error {
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     socketName,
		ResourceName: resource,
		Options:      options(),
	})
	return err
}
