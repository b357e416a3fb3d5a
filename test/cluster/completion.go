package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// TransferHeader carries the id of the transfer that a router's answer came by.
const TransferHeader = "X-PDPool-Transfer"

// Completion is an answer to a prompt.
type Completion struct {
	Status   int
	Text     string // of a good answer
	Error    string // the message of an OpenAI error
	Transfer string
	Chunks   int // of a stream
	Took     time.Duration
}

// Complete sends a prompt to target and reads the whole answer. each, when not
// nil, asks for a stream and gets every piece of text as it comes.
func (c *Cluster) Complete(ctx context.Context, namespace, target, model, prompt string, tokens int, each func(string)) (Completion, error) {
	return c.post(ctx, namespace, target, "/v1/completions",
		map[string]any{"model": model, "prompt": prompt, "max_tokens": tokens, "stream": each != nil}, each)
}

// Chat sends a prompt as a user's message and reads the whole answer.
func (c *Cluster) Chat(ctx context.Context, namespace, target, model, prompt string, tokens int) (Completion, error) {
	message := map[string]string{"role": "user", "content": prompt}
	return c.post(ctx, namespace, target, "/v1/chat/completions",
		map[string]any{"model": model, "messages": []any{message}, "max_tokens": tokens}, nil)
}

func (c *Cluster) post(ctx context.Context, namespace, target, path string, request map[string]any, each func(string)) (Completion, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return Completion{}, err
	}
	start := time.Now()
	response, err := c.Request(ctx, namespace, target, http.MethodPost, path, body)
	if err != nil {
		return Completion{}, err
	}
	defer func() { _ = response.Body.Close() }()
	out := Completion{Status: response.StatusCode, Transfer: response.Header.Get(TransferHeader)}
	if response.StatusCode == http.StatusOK && each != nil {
		err = out.readStream(response.Body, each)
	} else {
		err = out.readWhole(response.Body)
	}
	out.Took = time.Since(start)
	return out, err
}

type answer struct {
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
	} `json:"choices"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (a answer) into(out *Completion) string {
	if a.Error != nil {
		out.Error = a.Error.Message
	}
	var text strings.Builder
	for _, choice := range a.Choices {
		text.WriteString(choice.Text + choice.Message.Content)
	}
	out.Text += text.String()
	return text.String()
}

func (out *Completion) readWhole(body io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(body, 8<<20))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("status %d, not JSON: %.300q", out.Status, text)
	}
	a.into(out)
	if out.Status != http.StatusOK && out.Error == "" {
		return fmt.Errorf("status %d without an error: %.300s", out.Status, text)
	}
	return nil
}

// readStream reads server-sent events until [DONE]; a stream that ends without
// it, or with an error event, is told in Error.
func (out *Completion) readStream(body io.Reader, each func(string)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			// To the end, so that the connection is kept, as nobody gave up.
			_, err := io.Copy(io.Discard, body)
			return err
		}
		var a answer
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			return fmt.Errorf("an event is not JSON: %.300q", data)
		}
		out.Chunks++
		each(a.into(out))
	}
	if out.Error == "" {
		out.Error = "the stream ended without [DONE]"
	}
	return lines.Err()
}
