package transferagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/poolkey"
)

const (
	// heldSecrets is how many secrets an agent accepts: the one that it signs with,
	// the folder's previous one, and those that it has had before.
	heldSecrets  = 4
	readKeyEvery = time.Minute
	readKeyAgain = time.Second // after a proof that failed, at the soonest
)

// keyring holds the secrets of the pool. Whoever mounts the folder may replace them
// at any time; secrets that were replaced are still accepted, as not every agent sees
// the new ones at the same time. The zero value has none.
type keyring struct {
	dir string
	log *slog.Logger

	keys atomic.Pointer[poolkey.Keys]

	mu   sync.Mutex
	held [][]byte  // the one to sign with first, then from new to old
	read time.Time // last
}

// openKeys reads the folder. Without one there are no secrets, and everything is accepted.
func openKeys(dir string, log *slog.Logger) (*keyring, error) {
	k := &keyring{dir: dir, log: log}
	if dir == "" {
		return k, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.load(); err != nil {
		return nil, err
	}
	return k, nil
}

// load reads the folder and reports whether that changed anything. The caller holds mu.
func (k *keyring) load() (bool, error) {
	k.read = time.Now()
	key, err := readSecret(filepath.Join(k.dir, agentconfig.KeyFile))
	if err != nil {
		return false, fmt.Errorf("pool secret: %w", err)
	}
	now := [][]byte{key}
	previous, err := readSecret(filepath.Join(k.dir, agentconfig.PreviousKeyFile))
	switch {
	case err == nil:
		now = append(now, previous)
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("previous pool secret: %w", err)
	}
	for _, s := range k.held {
		if len(now) < heldSecrets && !slices.ContainsFunc(now, func(o []byte) bool { return bytes.Equal(o, s) }) {
			now = append(now, s)
		}
	}
	if slices.EqualFunc(now, k.held, bytes.Equal) {
		return false, nil
	}
	keys, err := poolkey.New(now...)
	if err != nil {
		return false, fmt.Errorf("%s: %w", k.dir, err)
	}
	k.held = now
	k.keys.Store(&keys)
	return true, nil
}

// readSecret reads a file that is no longer than a secret, and one byte more of a longer one.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, poolkey.MaxSecret+1))
	return b, errors.Join(err, f.Close())
}

// current are the secrets of this moment.
func (k *keyring) current() poolkey.Keys {
	if keys := k.keys.Load(); keys != nil {
		return *keys
	}
	return poolkey.Keys{}
}

// valid checks a proof, against a folder read anew if it fails.
func (k *keyring) valid(proof []byte, purpose poolkey.Purpose, parts ...[]byte) bool {
	return k.current().Valid(proof, purpose, parts...) || k.again() && k.current().Valid(proof, purpose, parts...)
}

// again reads the folder unless that was done just now, and reports whether there are
// other secrets than before. Strangers make proofs fail: it costs them nothing, and us little.
func (k *keyring) again() bool {
	if k.dir == "" || !k.mu.TryLock() {
		return false
	}
	defer k.mu.Unlock()
	if time.Since(k.read) < readKeyAgain {
		return false
	}
	changed, err := k.load()
	if err != nil {
		k.log.Error("the pool's secrets can't be read again, the last ones stay", "error", err)
	}
	if changed {
		k.log.Info("the pool's secrets have changed", "accepted", len(k.held))
	}
	return changed
}

// watch reads the folder every minute until ctx ends.
func (k *keyring) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		pause(ctx, readKeyEvery)
		k.again()
	}
	return nil
}
