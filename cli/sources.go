package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pdpool/pdpool/cli/manifest"
)

// Bounds of what is read.
const (
	maxFile  = 64 << 20 // bytes of a file or of standard input
	maxFiles = 10_000   // of a folder
)

// stdin is the name of standard input in places.
const stdin = "stdin"

// source is a text and the name of where it comes from.
type source struct {
	name string
	text []byte
}

// contents reads all manifests that paths name: files, folders, "-".
func (o Options) contents(paths []string) (manifest.Content, error) {
	var all manifest.Content
	for _, path := range paths {
		sources, err := o.sources(path)
		if err != nil {
			return all, err
		}
		for _, s := range sources {
			c := manifest.Read(s.name, s.text)
			all.Pools = append(all.Pools, c.Pools...)
			all.Errors = append(all.Errors, c.Errors...)
			all.Others += c.Others
		}
	}
	return all, nil
}

func (o Options) sources(path string) ([]source, error) {
	if path == "-" {
		text, err := readAll(o.In)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return []source{{stdin, text}}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if info.IsDir() {
		if names, err = manifestsIn(path); err != nil {
			return nil, err
		}
	}
	out := make([]source, 0, len(names))
	for _, name := range names {
		text, err := readFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, source{name, text})
	}
	return out, nil
}

// manifestsIn are the YAML and JSON files of a folder and those in it, by name.
// Folders that begin with a dot are left out.
func manifestsIn(folder string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != folder && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case e.Type().IsRegular() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			names = append(names, path)
		}
		if len(names) > maxFiles {
			return fmt.Errorf("%s has more than %d manifests", folder, maxFiles)
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no .yaml, .yml or .json file", folder)
	}
	return names, err
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return text, err
}

// textOrFile is the text of a flag, or of the file that it names after an "@".
func (o Options) textOrFile(flag, value string) (source, error) {
	name, ok := strings.CutPrefix(value, "@")
	if !ok {
		return source{"--" + flag, []byte(value)}, nil
	}
	if name == "" {
		return source{}, errors.New("--" + flag + " @ names no file")
	}
	if name == "-" {
		text, err := readAll(o.In)
		return source{stdin, text}, err
	}
	text, err := readFile(name)
	return source{name, text}, err
}
