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
	"github.com/pdpool/pdpool/engine"
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

// contents reads all manifests that paths name: files, folders, "-". A file that a
// folder has and a path names too is read once. Of folders, documents that are no
// Kubernetes objects are left out.
func (o Options) contents(paths []string) (manifest.Content, error) {
	var all manifest.Content
	files, err := o.files(paths)
	if err != nil {
		return all, err
	}
	for _, f := range files {
		s, err := f.read(o)
		if err != nil {
			return all, err
		}
		c := manifest.Read(s.name, s.text)
		if f.found {
			c.LeaveOut()
		}
		all.Pools = append(all.Pools, c.Pools...)
		all.Errors = append(all.Errors, c.Errors...)
		all.Others += c.Others
	}
	return all, nil
}

// file is a path to read. It is found where a folder has it, and no path names it.
type file struct {
	path  string
	found bool
}

// files are those that paths name, each once.
func (o Options) files(paths []string) ([]file, error) {
	var all []file
	at := map[string]int{}
	add := func(f file) {
		i, ok := at[filepath.Clean(f.path)]
		if !ok {
			at[filepath.Clean(f.path)] = len(all)
			all = append(all, f)
			return
		}
		all[i].found = all[i].found && f.found
	}
	for _, path := range paths {
		if path == "-" {
			add(file{path: path})
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			add(file{path: path})
			continue
		}
		names, err := manifestsIn(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			add(file{path: name, found: true})
		}
	}
	return all, nil
}

func (f file) read(o Options) (source, error) {
	if f.path == "-" {
		text, err := readAll(o.In)
		if err != nil {
			return source{}, fmt.Errorf("read standard input: %w", err)
		}
		return source{stdin, text}, nil
	}
	text, err := readFile(f.path)
	return source{f.path, text}, err
}

// sources are the texts that a path names.
func (o Options) sources(path string) ([]source, error) {
	files, err := o.files([]string{path})
	if err != nil {
		return nil, err
	}
	out := make([]source, 0, len(files))
	for _, f := range files {
		s, err := f.read(o)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
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

// beside reads the files that a command line names: in the folder of its text, else in
// that of the process.
func beside(text string) engine.ReadFile {
	return func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) && !strings.HasPrefix(text, "--") && text != stdin {
			name = filepath.Join(filepath.Dir(text), name)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		return io.ReadAll(io.LimitReader(f, engine.MaxConfig+1))
	}
}
