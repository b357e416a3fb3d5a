//go:build !linux

package cluster

import (
	"context"
	"net"
)

// Dial connects from the node's network, which only Linux can enter.
func (m *Machine) Dial(_ context.Context, _, address string) (net.Conn, error) {
	if err := literal(address); err != nil {
		return nil, err
	}
	return nil, ErrNoMachine
}
