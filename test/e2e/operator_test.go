package e2e

import (
	"context"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/test/cluster"
)

// Where the chart's release is.
const (
	operatorNamespace = "pdpool-system"
	operatorName      = "pdpool-manager"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":" + operatorName
)

// operatorReady waits until all managers are of the Deployment's present template and ready.
func operatorReady(ctx context.Context) error {
	return cluster.Poll(ctx, readyWithin, func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := k8s.Get(ctx, types.NamespacedName{Namespace: operatorNamespace, Name: operatorName}, d); err != nil {
			return err
		}
		want := *d.Spec.Replicas
		if s := d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.ReadyReplicas != want || s.Replicas != want {
			return fmt.Errorf("managers: %d wanted, %d updated, %d ready, %d there", want, s.UpdatedReplicas, s.ReadyReplicas, s.Replicas)
		}
		return nil
	})
}

// managers are the pods of the operator, by name.
func managers(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(k8s.List(ctx, list, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})).To(Succeed())
	Expect(list.Items).NotTo(BeEmpty())
	return list.Items
}

// auditLog is the API server's, of a development cluster.
func auditLog() string {
	GinkgoHelper()
	path := os.Getenv("E2E_AUDIT")
	Expect(path).NotTo(BeEmpty(), "E2E_AUDIT names the API server's audit log")
	return path
}
