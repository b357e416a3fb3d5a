package engine

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// document is a here-document that may start an engine: what a command reads, or what
// is written to a file that the text runs afterwards.
type document struct {
	text word
	at   int    // where it begins in the pasted text
	end  string // the word that ends it
	file string // the last part of the file's path, "" for none
	read bool
}

// maxDocuments bounds the here-documents of a text that are looked into.
const maxDocuments = 32

// document keeps the here-document that ends with a word and that this line begins, if
// an engine may be started in it. In one whose end is quoted, variables do not count.
func (s *shell) document(end string, quoted bool) {
	from := s.documentsTo
	if n := strings.IndexByte(s.src[s.pos:], '\n'); from < s.pos && n >= 0 {
		from = s.pos + n + 1
	}
	if from < s.pos {
		return
	}
	to, after := heredocEnd(s.src, from, end)
	s.documentsTo = after
	if !starts(s.src[from:to]) || len(s.documents) == maxDocuments {
		return
	}
	pos := s.pos
	s.b.reset()
	if quoted {
		s.take(from, to)
	} else {
		s.hereExpanded(from, to)
	}
	s.stdin = &document{text: s.b.word(s.src, s.at(from)), at: s.at(from), end: end}
	s.pos = pos
	s.b.reset()
	s.documents = append(s.documents, s.stdin)
}

// heredocEnd is where the text of a here-document ends and where the next line begins.
func heredocEnd(src string, from int, end string) (to, after int) {
	for at := from; at < len(src); {
		line, _, _ := strings.Cut(src[at:], "\n")
		next := min(at+len(line)+1, len(src))
		if strings.TrimLeft(strings.TrimRight(line, "\r"), "\t") == end {
			return at, next
		}
		at = next
	}
	return len(src), len(src)
}

// saves keeps what a command writes to a file.
func (s *shell) saves(words []word) {
	if s.stdin == nil {
		return
	}
	file := s.target
	if i := slices.IndexFunc(words, func(w word) bool { return path.Base(w.text) == "tee" }); i >= 0 {
		for _, w := range words[i+1:] {
			if !strings.HasPrefix(w.text, "-") {
				file = w.text
				break
			}
		}
	} else if len(words) > 0 && path.Base(words[0].text) != "cat" {
		return
	}
	if file == "" {
		return
	}
	s.stdin.file = path.Base(file)
	if s.files == nil {
		s.files = map[string]*document{}
	}
	s.files[s.stdin.file] = s.stdin
}

// written is the file of a path that the text has written; nil for others.
func (r *reader) written(name string) *document {
	if name == "" {
		return nil
	}
	return r.files[path.Base(name)]
}

// open reads a document as what it is: commands with arguments, containers, or a unit.
func (c command) open(d *document, args []word) {
	if !d.read || len(args) > 0 {
		d.read = true
		c.inside(d.text, args)
	}
}

// script is how files of commands begin or are called.
var script = regexp.MustCompile(`^\s*#!.*sh\b|\.(sh|bash|sbatch|slurm)$`)

// unopened reads the documents that nothing in the text reads and that are files of
// commands, of containers or units all the same, where nothing else starts an engine:
// they are run elsewhere. Others are data of a program.
func (s *shell) unopened() {
	alone := len(s.out.Launches) == 0
	for i := 0; i < len(s.documents); i++ {
		d := s.documents[i]
		text := d.text.text
		switch {
		case d.read:
		case alone && (looksYAML(text) || unitStart.MatchString(text) || script.MatchString(d.file) || script.MatchString(text)):
			command{shell: s, image: s.image, host: s.host}.open(d, nil)
		default:
			s.note(d.at, "the lines up to %s are data of the command above, and were not read as commands", brief(d.end))
		}
	}
}
