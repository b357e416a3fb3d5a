package manifest

import (
	"bytes"
	"iter"
	"strings"
)

// chunk is the text of one document, and the number of its first line.
type chunk struct {
	text []byte
	line int
}

// split cuts a stream at its document marks, which YAML allows nowhere else at the
// begin of a line. Each document is then read alone, so that an error in one of
// them costs no other.
func split(text []byte) iter.Seq[chunk] {
	return func(yield func(chunk) bool) {
		text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		cutAll(text, yield)
	}
}

func cutAll(text []byte, yield func(chunk) bool) {
	begin, first, line := 0, 1, 1
	more := true
	cut := func(end, next, nextLine int) {
		if part := text[begin:end]; holds(part) {
			more = yield(chunk{text: part, line: first})
		}
		begin, first = next, nextLine
	}
	for at := 0; more && at < len(text); line++ {
		end := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		switch l := text[at:end]; {
		case marks(l, "---"):
			cut(at, at, line)
		case marks(l, "..."):
			cut(at, end, line+1)
		}
		at = end
	}
	if more {
		cut(len(text), len(text), line)
	}
}

func marks(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// holds says that there is more than comments, directives and a mark.
func holds(part []byte) bool {
	for line := range bytes.Lines(part) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("---")))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}
