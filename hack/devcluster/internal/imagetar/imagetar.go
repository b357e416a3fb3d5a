// Package imagetar writes container images as docker-archives, the format of
// "docker save", without a container engine. The same input gives the same bytes.
package imagetar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Image is what an archive holds. Everything below Files is optional.
type Image struct {
	Name       string   // with a tag, such as localhost/x:dev
	Files      []string // SOURCE or SOURCE:TARGET; TARGET defaults to /BASENAME
	Base       string   // tar file with a root filesystem below Files
	Entrypoint string   // path in the image; defaults to the first file's target
	User       string   // UID or UID:GID that the entrypoint runs as
	Env        []string // K=V
}

// layer is one filesystem layer: its digest, and how to read it.
type layer struct {
	size   int64
	digest string
	open   func() (io.ReadCloser, error)
}

// Write writes the image as a docker-archive to the file out, whole or not at all.
func Write(out string, image Image) (err error) {
	if err := image.Validate(); err != nil {
		return err
	}
	layers, entrypoint, err := image.layers()
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".image-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	err = errors.Join(image.writeArchive(tmp, layers, entrypoint), tmp.Chmod(0o644), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), out)
}

// Validate says what is wrong with the image's description.
func (i Image) Validate() error {
	slash := strings.LastIndex(i.Name, "/")
	if slash < 1 || !strings.Contains(i.Name[slash:], ":") || strings.ContainsAny(i.Name, " @") || strings.HasSuffix(i.Name, ":") {
		return fmt.Errorf("%q is no image name such as localhost/x:dev: give a registry, a name and a tag", i.Name)
	}
	if len(i.Files) == 0 && i.Base == "" {
		return errors.New("an image needs a file or a base")
	}
	return nil
}

// layers returns the base's layer, if there is one, and that of the files.
func (i Image) layers() (all []layer, entrypoint string, err error) {
	if i.Base != "" {
		base, err := fileLayer(i.Base)
		if err != nil {
			return nil, "", fmt.Errorf("cannot read the base: %w", err)
		}
		all = append(all, base)
	}
	entrypoint = i.Entrypoint
	var buffer bytes.Buffer
	w := layerWriter{tar: tar.NewWriter(&buffer), dirs: map[string]bool{}}
	if err := w.mkdir("tmp", 0o1777); err != nil {
		return nil, "", err
	}
	for _, f := range i.Files {
		source, target := splitFile(f)
		if entrypoint == "" {
			entrypoint = target
		}
		if err := w.addFile(source, strings.TrimPrefix(target, "/")); err != nil {
			return nil, "", err
		}
	}
	if err := w.tar.Close(); err != nil {
		return nil, "", err
	}
	return append(all, memoryLayer(buffer.Bytes())), entrypoint, nil
}

// splitFile splits SOURCE[:TARGET]; a target is an absolute path.
func splitFile(arg string) (source, target string) {
	if at := strings.LastIndex(arg, ":/"); at > 0 {
		return arg[:at], path.Clean(arg[at+1:])
	}
	return arg, "/" + filepath.Base(arg)
}

func memoryLayer(b []byte) layer {
	sum := sha256.Sum256(b)
	return layer{
		size:   int64(len(b)),
		digest: hex.EncodeToString(sum[:]),
		open:   func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
	}
}

func fileLayer(name string) (layer, error) {
	f, err := os.Open(name)
	if err != nil {
		return layer{}, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return layer{}, err
	}
	return layer{
		size:   size,
		digest: hex.EncodeToString(sum.Sum(nil)),
		open:   func() (io.ReadCloser, error) { return os.Open(name) },
	}, nil
}

// layerWriter writes files with their parent folders, without times and owners.
type layerWriter struct {
	tar  *tar.Writer
	dirs map[string]bool
}

func (w *layerWriter) mkdir(dir string, mode int64) error {
	if dir == "." || dir == "/" || w.dirs[dir] {
		return nil
	}
	if err := w.mkdir(path.Dir(dir), 0o755); err != nil {
		return err
	}
	w.dirs[dir] = true
	return w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode})
}

// addFile adds a file, executable when the source is, whatever the umask made of it.
func (w *layerWriter) addFile(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", source)
	}
	b, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := w.mkdir(path.Dir(target), 0o755); err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: target, Mode: mode, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err = w.tar.Write(b)
	return err
}

// writeArchive writes the layers, the image's configuration and the manifest.
func (i Image) writeArchive(out io.Writer, layers []layer, entrypoint string) error {
	w := tar.NewWriter(out)
	var names, diffIDs []string
	for n, l := range layers {
		names = append(names, fmt.Sprintf("layer%d.tar", n))
		diffIDs = append(diffIDs, "sha256:"+l.digest)
		if err := writeEntry(w, names[n], l); err != nil {
			return err
		}
	}
	run := map[string]any{"Env": append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/"}, i.Env...)}
	if entrypoint != "" {
		run["Entrypoint"] = []string{entrypoint}
	}
	if i.User != "" {
		run["User"] = i.User
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      time.Unix(0, 0).UTC(),
		"config":       run,
		"rootfs":       map[string]any{"type": "layers", "diff_ids": diffIDs},
	})
	if err != nil {
		return err
	}
	c := memoryLayer(config)
	manifest, err := json.Marshal([]map[string]any{{"Config": c.digest + ".json", "RepoTags": []string{i.Name}, "Layers": names}})
	if err != nil {
		return err
	}
	return errors.Join(
		writeEntry(w, c.digest+".json", c),
		writeEntry(w, "manifest.json", memoryLayer(manifest)),
		w.Close(),
	)
}

func writeEntry(w *tar.Writer, name string, l layer) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: l.size}); err != nil {
		return err
	}
	r, err := l.open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	_, err = io.Copy(w, r)
	return err
}
