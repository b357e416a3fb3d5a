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
	// keepSecret is how long a secret is accepted after it has left the folder: kubelets
	// bring a Secret's change within about a minute, and agents read it a minute later at
	// the latest.
	keepSecret = 3 * time.Minute
)

// keyring holds the secrets of the pool. Whoever mounts the folder may replace them
// at any time; secrets that were replaced are accepted for keepSecret more, as not every
// agent sees the new ones at the same time. The zero value has none.
type keyring struct {
	dir string
	log *slog.Logger

	keys atomic.Pointer[poolkey.Keys]

	mu   sync.Mutex
	held []heldSecret // the one to sign with first, then from new to old
	read time.Time    // last
}

// heldSecret is a secret that is accepted.
type heldSecret struct {
	bytes []byte
	left  time.Time // when it was first missed in the folder, zero while it is there
}

// openKeys reads the folder. Without one there are no secrets, and everything is accepted.
func openKeys(dir string, log *slog.Logger) (*keyring, error) {
	k := &keyring{dir: dir, log: log}
	if dir == "" {
		return k, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := k.load(time.Now()); err != nil {
		return nil, err
	}
	return k, nil
}

// load reads the folder and reports whether that changed anything. A folder that can't
// be read is taken to have what it had. The caller holds mu; now is of the monotonic clock.
func (k *keyring) load(now time.Time) (bool, error) {
	k.read = now
	folder, err := k.folder()
	if err == nil {
		if _, err = poolkey.New(folder...); err != nil {
			err = fmt.Errorf("%s: %w", k.dir, err)
		}
	}
	if err != nil {
		folder = nil
		for _, s := range k.held {
			if s.left.IsZero() {
				folder = append(folder, s.bytes)
			}
		}
		if len(folder) == 0 {
			return false, err
		}
	}
	changed, failed := k.hold(now, folder)
	return changed, errors.Join(err, failed)
}

// folder reads the secrets that are there now, the one to sign with first.
func (k *keyring) folder() ([][]byte, error) {
	key, err := readSecret(filepath.Join(k.dir, agentconfig.KeyFile))
	if err != nil {
		return nil, fmt.Errorf("pool secret: %w", err)
	}
	previous, err := readSecret(filepath.Join(k.dir, agentconfig.PreviousKeyFile))
	switch {
	case err == nil:
		return [][]byte{key, previous}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("previous pool secret: %w", err)
	}
	return [][]byte{key}, nil
}

// hold takes the secrets of the folder, and keeps those that have left it for a while.
func (k *keyring) hold(now time.Time, folder [][]byte) (changed bool, err error) {
	held := make([]heldSecret, 0, heldSecrets)
	for _, b := range folder {
		held = append(held, heldSecret{bytes: b})
	}
	for _, s := range k.held {
		if s.left.IsZero() {
			s.left = now
		}
		there := slices.ContainsFunc(held, func(o heldSecret) bool { return bytes.Equal(o.bytes, s.bytes) })
		if !there && len(held) < heldSecrets && now.Sub(s.left) < keepSecret {
			held = append(held, s)
		}
	}
	same := slices.EqualFunc(held, k.held, func(a, b heldSecret) bool { return bytes.Equal(a.bytes, b.bytes) })
	if !same {
		all := make([][]byte, len(held))
		for i, s := range held {
			all[i] = s.bytes
		}
		keys, err := poolkey.New(all...)
		if err != nil {
			return false, fmt.Errorf("%s: %w", k.dir, err)
		}
		k.keys.Store(&keys)
	}
	k.held = held
	return !same, nil
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
	now := time.Now()
	if now.Sub(k.read) < readKeyAgain {
		return false
	}
	changed, err := k.load(now)
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
