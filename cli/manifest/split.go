package manifest

import (
	"bytes"
	"strings"
)

// chunk is the text of one document, and the number of its first line.
type chunk struct {
	text string
	line int
}

// split cuts a stream at its document marks, which YAML allows nowhere else at the
// begin of a line. Each document is then read alone, so that an error in one of
// them costs no other.
func split(text []byte) []chunk {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var out []chunk
	begin, first, line := 0, 1, 1
	cut := func(end, next, nextLine int) {
		if part := string(text[begin:end]); holds(part) {
			out = append(out, chunk{text: part, line: first})
		}
		begin, first = next, nextLine
	}
	for at := 0; at < len(text); line++ {
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
	cut(len(text), len(text), line)
	return out
}

func marks(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// holds says that there is more than comments, directives and a mark.
func holds(part string) bool {
	for line := range strings.Lines(part) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "---"))
		if line != "" && line[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}
