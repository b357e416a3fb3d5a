package builder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	progressInterval = 10 * time.Second
	tailLines        = 20 // of a failed build's output
)

// compile runs "go build" for a target and moves its binaries to their place.
func (b *Builder) compile(ctx context.Context, t target) error {
	tmp, err := os.MkdirTemp(b.cache, "build-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	args := append([]string{"build", "-v", "-buildvcs=false", "-o", tmp + "/"}, t.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, t.packages...)...)
	cmd.Dir = filepath.Join(b.source, t.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	name := strings.Join(t.binaries, ", ")
	b.printf("building %s", name)
	tail := b.follow(output, name, t.about)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("the build of %s was interrupted", name)
		}
		return fmt.Errorf("cannot build %s: %w\n%s", name, err, strings.Join(tail, "\n"))
	}
	b.printf("built %s in %s", name, time.Since(start).Round(time.Second/10))
	for _, binary := range t.binaries {
		if err := os.Rename(filepath.Join(tmp, binary), filepath.Join(b.Bin(), binary)); err != nil {
			return err
		}
	}
	return nil
}

// follow reads the output of "go build -v", says now and then how far it is, and
// returns its last lines. Lines without a blank are the names of compiled packages.
func (b *Builder) follow(output io.Reader, name, about string) []string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(output)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		_, _ = io.Copy(io.Discard, output)
	}()
	start := time.Now()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	var tail []string
	compiled, downloaded := 0, 0
	for {
		select {
		case line, open := <-lines:
			switch {
			case !open:
				return tail
			case strings.HasPrefix(line, "go: downloading "):
				downloaded++
			case !strings.Contains(line, " "):
				compiled++
			default:
				if tail = append(tail, line); len(tail) > tailLines {
					tail = tail[1:]
				}
			}
		case <-tick.C:
			b.printf("  %s: %d modules downloaded, %d packages compiled (%s when nothing is cached), %s",
				name, downloaded, compiled, about, time.Since(start).Round(time.Second))
		}
	}
}

func (b *Builder) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, format+"\n", args...)
}

// lock waits until no other process builds and returns what ends that.
func (b *Builder) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(b.cache, "build.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if !waited {
			b.printf("waiting for another build to end")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(errors.New("interrupted while another build runs"), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
