package cli

import (
	"fmt"
	"strings"
)

// Cost is who moves the bytes of a prompt, why, and what that takes.
type Cost struct {
	Mode  string `json:"mode"`
	Mover string `json:"mover"`
	// Backend is the way of the bytes; "" where the agents choose it.
	Backend string `json:"backend,omitempty"`
	Reason  string `json:"reason"`
	// PromptTokens is the length of a new prompt, and PromptBytes what it writes; 0 where
	// the model is not known.
	PromptTokens int   `json:"promptTokens,omitempty"`
	PromptBytes  int64 `json:"promptBytes,omitempty"`
	// DecodeTokens is what a decode instance holds; 0 where its memory is not known.
	DecodeTokens int64 `json:"decodeTokens,omitempty"`
}

// costTokens is the prompt whose bytes check tells.
const costTokens = 1000

func (c Cost) String() string {
	text := fmt.Sprintf("%s by %s", c.Mode, c.Mover)
	if c.Backend != "" {
		text += " over " + c.Backend
	}
	return text + ": " + c.Reason
}

// figures are the numbers in a line; "" where none is known.
func (c Cost) figures() string {
	var parts []string
	if c.PromptBytes > 0 {
		parts = append(parts, fmt.Sprintf("a new prompt of %s tokens writes %s bytes (%s)", grouped(c.PromptTokens), grouped(c.PromptBytes), size(c.PromptBytes)))
	}
	if c.DecodeTokens > 0 {
		parts = append(parts, fmt.Sprintf("a decode instance holds %s tokens", grouped(c.DecodeTokens)))
	}
	return strings.Join(parts, "; ")
}

// priced is what transfers take.
func (s setup) priced() *Cost {
	out := s.cost
	if s.known {
		for _, f := range s.model.Written(s.prompt(costTokens)) {
			out.PromptTokens, out.PromptBytes = costTokens, out.PromptBytes+f.Bytes
		}
	}
	if held, err := s.decode.capacity(s.model); s.known && err == nil {
		out.DecodeTokens = held.Tokens
	}
	return &out
}
