package transferagent

import (
	"fmt"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/shm"
	"github.com/pdpool/pdpool/transferagent/transport/tcp"
)

// openMover opens the mover that the configuration names, and tells its name to
// peers.
func openMover(o Options, m *metrics, keys *keyring) (transport.Mover, string, error) {
	ip := o.PodIP.Unmap().String()
	dropped := func(reason string) {
		m.drop(portData, reason)
		if reason == "proof" || reason == "listener-proof" {
			keys.again()
		}
	}
	switch {
	case o.Mover != nil:
		return o.Mover, "mem", nil
	case o.Config.Backend == agentconfig.TCP:
		mover, err := tcp.New(endpoint(ip, o.Config.Ports.Data), tcp.Options{Keys: keys.current, Count: dropped})
		if err != nil {
			return nil, "", fmt.Errorf("data port %d: %w", o.Config.Ports.Data, err)
		}
		return mover, "tcp", nil
	case o.Config.Backend == agentconfig.SharedMemory:
		// The address is short and no other pod's; the port tells pods of the host's network apart.
		mover, err := shm.New(o.Config.SharedDir, fmt.Sprintf("%s-%d", ip, o.Config.Ports.Agent), shm.Options{
			Keys:    keys.current,
			Count:   dropped,
			OnStuck: func(err error) { o.Log.Error("a writer was cut off, its last piece may still land", "error", err) },
		})
		if err != nil {
			return nil, "", fmt.Errorf("shared directory %s: %w", o.Config.SharedDir, err)
		}
		return mover, "shm", nil
	}
	return nil, "", fmt.Errorf("backend %q: the agent moves bytes by %s or %s", o.Config.Backend, agentconfig.TCP, agentconfig.SharedMemory)
}
