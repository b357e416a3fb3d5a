package cli

import (
	"bytes"
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
	maxFile   = 64 << 20  // bytes of a file or of standard input
	maxTotal  = 256 << 20 // bytes of all
	maxFiles  = 10_000    // of a folder
	maxPools  = 5000      // and no file behind those
	maxErrors = 1000      // and no file behind those
)

// stdin is the name of standard input in places.
const stdin = "stdin"

// source is a text and the name of where it comes from.
type source struct {
	name string
	text []byte
}

// each reads the manifests that paths name, files, folders and "-", one at a time, and
// gives each what it holds. A file that a folder has and a path names too is read once.
// Of folders, documents that are no Kubernetes objects are left out. What cannot be read
// is an error of the content, beside those that can.
func (o Options) each(paths []string, take func(manifest.Content)) error {
	all, err := files(paths)
	if err != nil {
		return err
	}
	pools, errs := 0, 0
	in := input{from: o.In, left: maxTotal}
	for _, f := range all {
		var c manifest.Content
		fail := func(name, text string) {
			c.Errors = []*manifest.Error{{Place: manifest.Place{File: name}, Text: text}}
		}
		if pools >= maxPools || errs >= maxErrors || in.left < 0 {
			fail(f.path, fmt.Sprintf("this file and all behind it are not read: of files, the first are that have %s, %s or %s",
				count(maxPools, "pool"), count(maxErrors, "error"), size(maxTotal)))
			take(c)
			break
		}
		s, err := in.read(f)
		if err != nil {
			fail(s.name, "it can't be read: "+causeOf(err))
		} else {
			c = manifest.Read(s.name, s.text)
		}
		if f.found {
			c.LeaveOut()
		}
		pools, errs = pools+len(c.Pools), errs+len(c.Errors)
		take(c)
	}
	return nil
}

// causeOf is an error without the path, which is told before it.
func causeOf(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return err.Error()
}

// file is a path to read. It is found where a folder has it, and no path names it.
type file struct {
	path  string
	found bool
	err   error // why it can't be read, where that is known
}

// files are those that paths name, each once. A path to nothing is an error.
func files(paths []string) ([]file, error) {
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
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %s", path, causeOf(notAFile(path, err)))
		}
		if err != nil || !info.IsDir() {
			add(file{path: path, err: err})
			continue
		}
		for _, f := range manifestsIn(path) {
			add(f)
		}
	}
	return all, nil
}

// input is what is read in all.
type input struct {
	from io.Reader // standard input
	left int64     // bytes that may be read yet
}

// errTotal says that all files together are too long.
var errTotal = fmt.Errorf("all that is read has more than %s", size(maxTotal))

// read is the text of a file, or of standard input for "-".
func (in *input) read(f file) (source, error) {
	s := source{name: f.path}
	if f.err != nil {
		return s, f.err
	}
	var err error
	if f.path == "-" {
		s.name = stdin
		s.text, err = readAll(in.from, 0)
	} else {
		s.text, err = readFile(f.path)
	}
	if in.left -= int64(len(s.text)); err == nil && in.left < 0 {
		return source{name: s.name}, errTotal
	}
	return s, err
}

// read is the text of a file alone.
func (f file) read(o Options) (source, error) {
	in := input{from: o.In, left: maxTotal}
	s, err := in.read(f)
	if err != nil {
		err = fmt.Errorf("read %s: %w", s.name, err)
	}
	return s, err
}

// manifestsIn are the YAML and JSON files of a folder and those in it, by name. Folders
// that begin with a dot are left out. Links to files are files, as kubectl has it and
// as ConfigMaps are mounted; links to folders are left out but for the folder itself.
func manifestsIn(folder string) []file {
	var found []file
	folder = filepath.Clean(folder)
	root := folder + string(filepath.Separator) // so that a link is followed
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			found = append(found, file{path: path, found: true, err: err})
			if e != nil && e.IsDir() && path != root {
				return filepath.SkipDir
			}
		case e.IsDir() && path != root && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) && isFile(path, e):
			found = append(found, file{path: path, found: true})
		}
		if len(found) > maxFiles {
			found[maxFiles] = file{path: folder, err: fmt.Errorf("it has more than %d manifests, and those behind are not read", maxFiles)}
			return filepath.SkipAll
		}
		return nil
	})
	return found
}

// isFile says that a path is a file, or a link to one or to nothing, which then is told
// when it is read.
func isFile(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Type().IsRegular()
	}
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var long int64
	if info, err := f.Stat(); err == nil {
		long = info.Size()
	}
	return readAll(f, long)
}

// readAll reads at most maxFile bytes, most likely as many as are said.
func readAll(r io.Reader, long int64) ([]byte, error) {
	var text bytes.Buffer
	text.Grow(int(min(max(long, 0), maxFile)) + bytes.MinRead)
	n, err := text.ReadFrom(io.LimitReader(r, maxFile+1))
	if err == nil && n > maxFile {
		err = fmt.Errorf("it has more than %s", size(maxFile))
	}
	return text.Bytes(), err
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
	return file{path: name}.read(o)
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
