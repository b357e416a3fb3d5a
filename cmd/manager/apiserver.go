package main

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

// oldestServer is the first Kubernetes that starts native sidecars, which transfer
// agents are, without a feature gate. An older one drops restartPolicy of an init
// container without a word, and pods would wait for their agents to end.
var oldestServer = utilversion.MustParseGeneric("1.29")

// checkServerVersion refuses an API server that is too old. One whose version can't
// be read as a version passes: it is somebody's own build.
func checkServerVersion(config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the client of the API server: %w", err)
	}
	info, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server at %s for its version: %w", config.Host, err)
	}
	served, unread := utilversion.ParseGeneric(info.GitVersion)
	if unread != nil {
		ctrl.Log.Info("version of the API server can't be read", "version", info.GitVersion, "reason", unread.Error())
	} else if served.LessThan(oldestServer) {
		return fmt.Errorf("API server has version %s; native sidecars, which transfer agents are, need %s or later", info.GitVersion, oldestServer)
	}
	return nil
}
