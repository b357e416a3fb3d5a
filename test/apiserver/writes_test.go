package apiserver

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const zapErrors = zapcore.ErrorLevel

// tally counts writes by namespace.
type tally struct {
	mu sync.Mutex
	by map[string]int
}

func (t *tally) add(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[namespace]++
}

func (t *tally) in(namespace string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[namespace]
}

// counting counts the writes that go through a client.
func counting(c client.Client, writes *tally) client.Client {
	return interceptor.NewClient(withWatch{c}, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			writes.add(obj.GetNamespace())
			return c.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			writes.add(obj.GetNamespace())
			return c.Delete(ctx, obj, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			writes.add(namespaceOf(obj))
			return c.Apply(ctx, obj, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			writes.add(obj.GetNamespace())
			return c.SubResource(name).Update(ctx, obj, opts...)
		},
	})
}

// namespaceOf is the namespace of what is applied, an unstructured object.
func namespaceOf(obj runtime.ApplyConfiguration) string {
	if named, ok := obj.(interface{ GetNamespace() string }); ok {
		return named.GetNamespace()
	}
	if named, ok := obj.(interface{ GetNamespace() *string }); ok && named.GetNamespace() != nil {
		return *named.GetNamespace()
	}
	return ""
}

// withWatch lets the interceptor take a manager's client, which does not watch.
type withWatch struct{ client.Client }

func (withWatch) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.New("the operator watches through its cache only")
}
