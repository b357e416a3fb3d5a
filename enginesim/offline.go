package enginesim

import (
	"slices"
	"strconv"
	"strings"
)

// AnswerOptions are the flags of "enginesim answer" that no server has.
type AnswerOptions struct {
	MaxTokens int
	Chat      bool
}

// ParseAnswer reads the arguments that follow "answer": those of serve, of which
// the layout makes no difference, --max-tokens and --chat.
func ParseAnswer(args []string) (Config, AnswerOptions, error) {
	o := AnswerOptions{MaxTokens: defaultTokens}
	var rest []string
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		switch {
		case args[i] == "--chat":
			o.Chat = true
		case name == "--max-tokens":
			if !inline && i+1 < len(args) {
				i++
				value = args[i]
			}
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return Config{}, o, usagef("--max-tokens needs a number from 1, not %q", value)
			}
			o.MaxTokens = n
		default:
			rest = append(rest, args[i])
		}
	}
	c, err := Parse(slices.Clip(rest))
	return c, o, err
}

// AnswerText is the text that every instance of a model answers to a prompt, or to
// a chat of one message of role user.
func AnswerText(c Config, o AnswerOptions, prompt string) (string, error) {
	if o.Chat {
		prompt = template([]message{{"user", prompt}})
	}
	tokens, err := notEmpty(Tokenize(prompt))
	if err != nil {
		return "", err
	}
	return Text(Answer(c.Geometry, tokens, o.MaxTokens)), nil
}
