// Package e2e runs PDPool on a real cluster: the operator as the chart installs
// it, pods on nodes with (simulated) GPUs, engines with checkable KV memory. It is
// run by hack/e2e.sh, which names the cluster; without it the suite is skipped.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/test/cluster"
)

// Waits are generous: a loaded machine of two cores is slow, not broken.
const (
	readyWithin = 2 * time.Minute
	goneWithin  = 2 * time.Minute
	soon        = 30 * time.Second
)

var (
	k8s       *cluster.Cluster
	clientset *kubernetes.Clientset
	// nodes are two nodes with GPUs enough for one role each.
	nodes []string
	// machine is where the nodes run, seen from the first of them; nil on a cluster
	// whose nodes can't be entered.
	machine *cluster.Machine
)

func TestE2E(t *testing.T) {
	if os.Getenv("E2E_KUBECONFIG") == "" {
		t.Skip("E2E_KUBECONFIG names no cluster: run make e2e")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "PDPool")
}

var _ = BeforeSuite(func() {
	// A spec's context has no deadline of its own.
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(readyWithin)
	SetDefaultEventuallyPollingInterval(250 * time.Millisecond)
	var err error
	k8s, err = cluster.Open(os.Getenv("E2E_KUBECONFIG"), os.Getenv("E2E_CONTEXT"))
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: os.Getenv("E2E_KUBECONFIG")},
		&clientcmd.ConfigOverrides{CurrentContext: os.Getenv("E2E_CONTEXT")}).ClientConfig()
	Expect(err).NotTo(HaveOccurred())
	clientset, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	var all corev1.NodeList
	Expect(k8s.List(context.Background(), &all)).To(Succeed())
	for _, n := range all.Items {
		if gpus := n.Status.Allocatable[v1alpha1.DefaultGPUResource]; gpus.Value() >= 8 {
			nodes = append(nodes, n.Labels[corev1.LabelHostname])
		}
	}
	Expect(len(nodes)).To(BeNumerically(">=", 2), "nodes with 8 GPUs")
	if command := os.Getenv("E2E_DEVCLUSTER"); command != "" {
		machine, err = cluster.OpenMachine(command, nodes[0])
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(machine.Close)
		k8s.Reach(machine)
	}
})

// newNamespace makes a namespace that ends with the spec; its pods' logs are kept when the spec fails.
func newNamespace(ctx context.Context) string {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	Expect(k8s.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			keepLogs(ctx, ns.Name)
		}
		// The pods first: they end in seconds, while the deletion of a namespace
		// looks again only after half of their grace period.
		Expect(k8s.DeleteAllOf(ctx, &v1alpha1.PDPool{}, client.InNamespace(ns.Name))).To(Succeed())
		Expect(k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(ns.Name))).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			pods := &corev1.PodList{}
			g.Expect(k8s.List(ctx, pods, client.InNamespace(ns.Name))).To(Succeed())
			g.Expect(pods.Items).To(BeEmpty())
		}).WithContext(ctx).WithTimeout(goneWithin).Should(Succeed())
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, ns))).To(Succeed())
	}, NodeTimeout(3*time.Minute))
	return ns.Name
}

// keepLogs prints how the pods are and writes their logs to E2E_LOGS.
func keepLogs(ctx context.Context, namespace string) {
	var pods corev1.PodList
	if err := k8s.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		GinkgoWriter.Printf("list pods: %v\n", err)
		return
	}
	for _, pod := range pods.Items {
		GinkgoWriter.Printf("pod %s: %s on %s, %v\n", pod.Name, pod.Status.Phase, pod.Spec.NodeName, pod.Status.ContainerStatuses)
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			text, err := clientset.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: c.Name}).DoRaw(ctx)
			if err != nil {
				continue
			}
			tail := text[max(0, len(text)-3000):]
			GinkgoWriter.Printf("--- %s/%s\n%s\n", pod.Name, c.Name, tail)
			file := filepath.Join(os.Getenv("E2E_LOGS"), fmt.Sprintf("%s-%s-%s.log", namespace, pod.Name, c.Name))
			_ = os.WriteFile(file, text, 0o600)
		}
	}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func itoa(n int) string { return fmt.Sprint(n) }
