//go:build depsonly

package depsonly

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/cobra"
	_ "github.com/tidwall/gjson"
	_ "github.com/tidwall/sjson"
	_ "github.com/tinylib/msgp/msgp"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "github.com/mattn/go-shellwords"
	_ "github.com/google/uuid"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "k8s.io/apiextensions-apiserver/pkg/apiserver"
	_ "k8s.io/client-go/kubernetes"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	_ "sigs.k8s.io/yaml"
)
