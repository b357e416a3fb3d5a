//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSocketPath is what the kernel takes (sun_path) without the final zero.
	maxSocketPath = 107
	// network keeps messages apart and in order, and knows an end.
	network = "unixpacket"
)

// ErrPathTooLong says that the kernel, which takes 107 bytes, would not take the path of a socket.
var ErrPathTooLong = errors.New("socket path is too long")

// ErrInUse says that another process listens at the socket, or a file is in its way.
var ErrInUse = errors.New("socket is in use")

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("socket name %q is not a file name", name)
	}
	return nil
}

func socketPath(dir, name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("%s has %d bytes, at most %d are possible: %w", path, len(path), maxSocketPath, ErrPathTooLong)
	}
	return path, nil
}

// listen makes the directory and the socket in it.
func listen(dir, name string) (*net.UnixListener, error) {
	path, err := socketPath(dir, name)
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil { // the umask may have taken the group away
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o770); err != nil {
		return err
	}
	return os.Chmod(dir, 0o770) //nolint:gosec // the pods of a pool share a group
}

// removeStale unlinks a socket that nobody listens at, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket: %w", path, ErrInUse)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s: %w", path, ErrInUse), conn.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("%s: %w: %w", path, ErrInUse, err)
}
