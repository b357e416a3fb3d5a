package engine

import (
	"cmp"
	"slices"
)

// word is a word of a command after quoting and expansion.
type word struct {
	text string
	// open is what of the word is not known, as typed: a variable that the text does
	// not define, a command substitution, a placeholder. It stays in text.
	open  string
	at    int    // offset in the pasted text of where the word was written
	body  int    // offset in the pasted text of text, where spans is nil
	spans []span // where the pieces of text were written
	// maybe is the variable that has the word on some ways through the text only, or
	// where something is open, other values on other ways.
	maybe string
	// option says that the variable of maybe has the word unless who calls the text gives
	// another: it is nothing that the text leaves open.
	option bool
	plain  bool // nothing of it was quoted or expanded
}

// span says that the text from an offset on was written at another one.
type span struct{ from, at int32 }

// maxSpans bounds how exactly a word of many pieces can be placed.
const maxSpans = 64

// locate is where the byte at an offset was written.
func locate(spans []span, offset int) int {
	i, found := slices.BinarySearchFunc(spans, offset, func(s span, o int) int { return int(s.from) - o })
	if !found {
		i = max(i-1, 0)
	}
	if len(spans) == 0 {
		return 0
	}
	return int(spans[i].at) + max(offset-int(spans[i].from), 0)
}

// origin is where the text of the word was written.
func (w word) origin() []span {
	if w.spans != nil {
		return w.spans
	}
	return []span{{0, int32(w.body)}}
}

func (w word) place(offset int) int {
	if w.spans != nil {
		return locate(w.spans, offset)
	}
	return w.body + offset
}

// plus is both texts in one word.
func (w word) plus(more word) word {
	spans := slices.Clone(w.origin())
	for _, s := range more.origin() {
		if len(spans) < maxSpans {
			spans = append(spans, span{s.from + int32(len(w.text)), s.at})
		}
	}
	maybe, option := doubt(w.maybe, w.option, more.maybe, more.option)
	return word{text: w.text + more.text, open: cmp.Or(w.open, more.open), maybe: maybe, option: option, at: w.at, spans: spans}
}

// wordBuilder collects the pieces of a word. A word that is one piece of the
// source is not copied.
type wordBuilder struct {
	from, to int // the piece of the source
	buf      []byte
	spans    []span
	copied   bool // the pieces are in buf
	any      bool // there is a word, even if it is empty
	expanded bool // its first piece is the value of a variable
	plain    bool
	open     string
	maybe    string
	option   bool
}

func (b *wordBuilder) reset() { *b = wordBuilder{buf: b.buf[:0], spans: b.spans[:0], plain: true} }

func (b *wordBuilder) size() int {
	if b.copied {
		return len(b.buf)
	}
	return b.to - b.from
}

// mark says that what is added next was written at an offset.
func (b *wordBuilder) mark(at int) {
	from := b.size()
	if n := len(b.spans); n > 0 {
		last := b.spans[n-1]
		if int(last.at)+from-int(last.from) == at || n == maxSpans {
			return
		}
		if int(last.from) == from { // an empty piece
			b.spans = b.spans[:n-1]
		}
	}
	b.spans = append(b.spans, span{int32(from), int32(at)})
}

// source adds src[from:to], which was written at an offset.
func (b *wordBuilder) source(src string, from, to, at int) {
	b.mark(at)
	switch {
	case b.copied:
		b.buf = append(b.buf, src[from:to]...)
	case b.from == b.to:
		b.from, b.to = from, to
	case b.to == from:
		b.to = to
	default:
		b.copy(src)
		b.buf = append(b.buf, src[from:to]...)
	}
	b.any = true
}

// add adds text from elsewhere, written at an offset.
func (b *wordBuilder) add(src, text string, at int) {
	b.mark(at)
	b.copy(src)
	b.buf = append(b.buf, text...)
	b.any = true
}

func (b *wordBuilder) copy(src string) {
	if !b.copied {
		b.buf = append(b.buf[:0], src[b.from:b.to]...)
		b.copied = true
	}
}

// doubt is that of two words' maybe and option which leaves more open.
func doubt(maybe string, option bool, other string, otherOption bool) (string, bool) {
	if maybe == "" || option && other != "" {
		return other, otherOption
	}
	return maybe, option
}

func (b *wordBuilder) unknown(what string) {
	if b.open == "" {
		b.open = what
	}
}

// word is what was collected; start is where it began.
func (b *wordBuilder) word(src string, start int) word {
	w := word{open: b.open, maybe: b.maybe, option: b.option, at: start, plain: b.plain}
	if b.expanded && len(b.spans) > 0 {
		w.at = int(b.spans[0].at)
	}
	if len(b.spans) > 1 {
		w.spans = slices.Clone(b.spans)
	} else if len(b.spans) == 1 {
		w.body = int(b.spans[0].at) - int(b.spans[0].from)
	}
	if b.copied {
		w.text = string(b.buf)
	} else {
		w.text = src[b.from:b.to]
	}
	return w
}
