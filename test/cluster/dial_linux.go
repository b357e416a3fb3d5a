package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dial connects from the node's network to an address of a pod or Service.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := literal(address); err != nil {
		return nil, err
	}
	type dialled struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		// A socket belongs to the namespace of the thread that makes it. The thread is
		// given back only when it is in its own namespace again; else it ends here.
		runtime.LockOSThread()
		own, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err != nil {
			done <- dialled{err: err}
			return
		}
		defer func() { _ = own.Close() }()
		if err := unix.Setns(int(m.network.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- dialled{err: fmt.Errorf("enter the node's network: %w", err)}
			return
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- dialled{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
