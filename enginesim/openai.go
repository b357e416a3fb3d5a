package enginesim

import (
	"encoding/json"
	"slices"
	"strings"
)

// body is a request to either completions endpoint. Fields that shape sampling are
// accepted and make no difference: there is one answer to a prompt. It has no end
// token, so ignore_eos and min_tokens hold anyway.
type body struct {
	Model               string          `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            []chatMessage   `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	N                   *int            `json:"n"`
	BestOf              *int            `json:"best_of"`
	Echo                bool            `json:"echo"`
	Stop                json.RawMessage `json:"stop"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	Transfer            json.RawMessage `json:"kv_transfer_params"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

const (
	defaultTokens = 16
	maxStops      = 16
)

// text reads a message's content: a string, or a list of parts of type text.
func (m chatMessage) text() (string, error) {
	var s string
	if len(m.Content) == 0 || string(m.Content) == "null" {
		return "", nil
	}
	if json.Unmarshal(m.Content, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", badRequest("message content is neither a string nor a list of parts")
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return "", badRequest("message part of type %.40q: only text can be read", p.Type)
		}
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, " "), nil
}

// prompt is the tokens of a request.
func (b *body) prompt(chat bool) ([]uint32, error) {
	if !chat {
		return promptTokens(b.Prompt)
	}
	if len(b.Messages) == 0 {
		return nil, badRequest("messages is empty")
	}
	var turns []message
	for _, m := range b.Messages {
		text, err := m.text()
		if err != nil {
			return nil, err
		}
		turns = append(turns, message{m.Role, text})
	}
	return Tokenize(template(turns)), nil
}

var errPrompt = badRequest("prompt is neither a string nor a list of token ids")

// promptTokens reads a string, a list of token ids, or a list with one of either.
func promptTokens(raw json.RawMessage) ([]uint32, error) {
	var several []json.RawMessage
	if json.Unmarshal(raw, &several) != nil || len(several) > 0 && !nested(several[0]) {
		return onePrompt(raw)
	}
	if len(several) != 1 {
		return nil, badRequest("prompt is a list of %d prompts, only one can be answered", len(several))
	}
	return onePrompt(several[0])
}

// nested says whether an element of a list is a prompt of its own.
func nested(element json.RawMessage) bool { return element[0] == '"' || element[0] == '[' }

func onePrompt(raw json.RawMessage) ([]uint32, error) {
	var s *string
	if json.Unmarshal(raw, &s) == nil && s != nil {
		return notEmpty(Tokenize(*s))
	}
	var ids []int64
	if json.Unmarshal(raw, &ids) != nil || ids == nil {
		return nil, errPrompt
	}
	out := make([]uint32, len(ids))
	for i, id := range ids {
		if id < 0 || id > maxToken {
			return nil, badRequest("token id %d is not 0 to %d", id, maxToken)
		}
		out[i] = uint32(id)
	}
	return notEmpty(out)
}

func notEmpty(tokens []uint32) ([]uint32, error) {
	if len(tokens) == 0 {
		return nil, badRequest("prompt is empty")
	}
	return tokens, nil
}

// count is the number of tokens to answer.
func (b *body) count() (int, error) {
	for _, n := range []*int{b.MaxCompletionTokens, b.MaxTokens} {
		if n == nil {
			continue
		}
		if *n < 1 {
			return 0, badRequest("max_tokens %d is less than 1", *n)
		}
		return *n, nil
	}
	return defaultTokens, nil
}

// stops reads a string or a list of strings.
func (b *body) stops() ([]string, error) {
	if len(b.Stop) == 0 || string(b.Stop) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(b.Stop, &one) == nil && one != "" {
		return []string{one}, nil
	}
	var many []string
	if err := json.Unmarshal(b.Stop, &many); err != nil || len(many) > maxStops || slices.Contains(many, "") {
		return nil, badRequest("stop is neither a string nor a list of at most %d strings", maxStops)
	}
	return many, nil
}

// refuse names what an instance with one answer can't do.
func (b *body) refuse() error {
	switch {
	case b.N != nil && *b.N != 1:
		return badRequest("n %d: only 1 is served", *b.N)
	case b.BestOf != nil && *b.BestOf != 1:
		return badRequest("best_of %d: only 1 is served", *b.BestOf)
	case b.Echo:
		return badRequest("echo is not served")
	}
	return nil
}

// usage counts tokens.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// answer is a response, or one chunk of it.
type answer struct {
	ID       string    `json:"id"`
	Object   string    `json:"object"`
	Created  int64     `json:"created"`
	Model    string    `json:"model"`
	Choices  []choice  `json:"choices"`
	Usage    *usage    `json:"usage,omitempty"`
	Transfer *produced `json:"kv_transfer_params,omitempty"`
}

type choice struct {
	Index   int      `json:"index"`
	Text    *string  `json:"text,omitempty"`    // completions
	Message *content `json:"message,omitempty"` // chat
	Delta   *content `json:"delta,omitempty"`   // chat, streaming
	Finish  *string  `json:"finish_reason"`
}

type content struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

// cutter holds back text that may be the beginning of a stop string.
type cutter struct {
	stops   []string
	pending string
}

// add takes a piece of text and gives out what can't be part of a stop string;
// stopped says that one has come, and its text and what follows are dropped.
func (c *cutter) add(piece string) (out string, stopped bool) {
	c.pending += piece
	first := -1
	for _, stop := range c.stops {
		if i := strings.Index(c.pending, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		return c.pending[:first], true
	}
	hold := 0
	for _, stop := range c.stops {
		for n := min(len(stop)-1, len(c.pending)); n > hold; n-- {
			if strings.HasSuffix(c.pending, stop[:n]) {
				hold = n
			}
		}
	}
	out = c.pending[:len(c.pending)-hold]
	c.pending = c.pending[len(out):]
	return out, false
}
