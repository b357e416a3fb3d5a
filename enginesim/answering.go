package enginesim

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// answering puts the tokens of one request into a response, as they come or at
// the end. One goroutine uses it.
type answering struct {
	w       http.ResponseWriter
	in      *Instance
	group   *group
	request *request
	chat    bool
	stream  bool
	usage   bool // asked for in the stream
	model   string
	created int64

	mishap  *mishap         // that strikes while it answers
	gone    <-chan struct{} // closed when the client is
	cut     cutter
	text    strings.Builder
	tokens  int
	ending  string // why the answer ended
	started bool   // the response has begun
}

// run generates the answer, unless it is to fail before it begins.
func (a *answering) run(r *http.Request) (blocks []int32, err error) {
	if a.mishap, err = a.in.mishaps.next(r); err != nil {
		return nil, err
	}
	if err := a.mishap.strike(a.gone, 0); err != nil {
		return nil, err
	}
	return a.group.generate(r.Context(), a.request)
}

// emit takes a token.
func (a *answering) emit(token uint32) (bool, error) {
	if err := a.mishap.strike(a.gone, a.tokens); err != nil {
		return false, err
	}
	out, stopped := a.cut.add(piece(token, a.tokens == 0))
	a.tokens++
	last := stopped || a.tokens == a.request.count
	if last {
		a.ending = "length"
		if stopped {
			a.ending = "stop"
		} else {
			out += a.cut.pending
		}
	}
	if !a.stream {
		a.text.WriteString(out)
		return !last, nil
	}
	// The last chunk is sent by finish, which knows that all went well.
	a.text.Reset()
	a.text.WriteString(out)
	if last {
		return false, nil
	}
	return true, a.send(a.chunk(out, nil))
}

// counts is the usage of the whole request.
func (a *answering) counts() *usage {
	n := len(a.request.tokens)
	return &usage{Prompt: n, Completion: a.tokens, Total: n + a.tokens}
}

// transferred is what a prefill leg tells, nil for others.
func (a *answering) transferred(blocks []int32) *produced {
	if a.request.push == "" {
		return nil
	}
	return a.in.produced(a.group, a.request.push, blocks[:a.in.cfg.Layout.blocksFor(len(a.request.tokens))])
}

// finish ends a response that went well.
func (a *answering) finish(blocks []int32) {
	if a.stream {
		last := a.chunk(a.text.String(), &a.ending)
		last.Transfer = a.transferred(blocks)
		err := a.send(last)
		if err == nil && a.usage {
			err = a.send(&answer{ID: a.request.id, Object: a.object(), Created: a.created, Model: a.model, Choices: []choice{}, Usage: a.counts()})
		}
		if err == nil {
			a.event([]byte("[DONE]")) //nolint:errcheck // the client is gone, and all is said
		}
		return
	}
	text := a.text.String()
	c := choice{Finish: &a.ending}
	if a.chat {
		c.Message = &content{Role: "assistant", Content: text}
	} else {
		c.Text = &text
	}
	reply(a.w, http.StatusOK, &answer{
		ID: a.request.id, Object: a.object(), Created: a.created, Model: a.model,
		Choices: []choice{c}, Usage: a.counts(), Transfer: a.transferred(blocks),
	})
}

// fail ends a response that went wrong: with a status, or where the response has
// begun with an event and without [DONE].
func (a *answering) fail(err error) {
	if !a.started {
		fail(a.w, err)
		return
	}
	_, body := describe(err)
	if out, err := json.Marshal(body); err == nil {
		a.event(out) //nolint:errcheck // nothing is left to tell a client that is gone
	}
}

func (a *answering) object() string {
	switch {
	case !a.chat:
		return "text_completion"
	case a.stream:
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

// chunk is one piece of a stream.
func (a *answering) chunk(text string, finish *string) *answer {
	c := choice{Finish: finish}
	if a.chat {
		c.Delta = &content{Content: text}
		if !a.started {
			c.Delta.Role = "assistant"
		}
	} else {
		c.Text = &text
	}
	return &answer{ID: a.request.id, Object: a.object(), Created: a.created, Model: a.model, Choices: []choice{c}}
}

func (a *answering) send(chunk *answer) error {
	out, err := json.Marshal(chunk)
	if err != nil {
		return err
	}
	return a.event(out)
}

// event writes one server-sent event, at once.
func (a *answering) event(data []byte) error {
	control := http.NewResponseController(a.w)
	if !a.started {
		a.started = true
		a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		a.w.Header().Set("Cache-Control", "no-cache")
		a.w.WriteHeader(http.StatusOK)
	}
	if err := control.SetWriteDeadline(time.Now().Add(chunkWithin)); err != nil {
		return err
	}
	if _, err := a.w.Write(append(append([]byte("data: "), data...), "\n\n"...)); err != nil {
		return err
	}
	return control.Flush()
}
