package router

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// request is what a client asks for, found good.
type request struct {
	endpoint string // path of the URL
	model    string
	stream   bool   // asked for; once answered, whether the answer is one
	cutEvent bool   // the stream broke inside an event
	id       string // the client's X-Request-Id, may be empty
	document document
}

// Endpoints whose requests have two legs.
const (
	completions     = "/v1/completions"
	chatCompletions = "/v1/chat/completions"
)

// maxID bounds the client's X-Request-Id.
const maxID = 256

// inspect reads a request for the two-legged endpoints. What one prefill and one
// hand-over can't serve is refused here, before any leg.
func inspect(endpoint, id, text string) (*request, *failure) {
	if f := checkID(id); f != nil {
		return nil, f
	}
	d, err := cut(text)
	if err != nil {
		return nil, badJSON(err)
	}
	model := d.field("model")
	if model.Type != gjson.String || model.Str == "" {
		return nil, refused(codeBadValue, "model", "model is missing or not a string")
	}
	for _, check := range []func(string, document) *failure{checkSpelling, checkReserved, checkFanOut, checkPrompt} {
		if f := check(endpoint, d); f != nil {
			return nil, f
		}
	}
	return &request{
		endpoint: endpoint, model: model.Str, id: id, document: d,
		// As engines read it; a wrong type is theirs to refuse.
		stream: d.field("stream").Bool(),
	}, nil
}

// badJSON refuses a body that cut does not take.
func badJSON(err error) *failure {
	f := refused(codeBadJSON, "", err.Error())
	if l, ok := errors.AsType[*limitError](err); ok {
		f.limit = l.limit
	}
	return f
}

// checkID refuses an id that an engine would take for the router's.
func checkID(id string) *failure {
	if len(id) > maxID {
		f := refused(codeBadValue, "X-Request-Id", fmt.Sprintf("X-Request-Id has %d bytes, the limit is %d", len(id), maxID))
		f.limit = limitID
		return f
	}
	if forged(id) {
		return refused(codeReserved, "X-Request-Id", "X-Request-Id holds marks of peer addresses, which only the router may set")
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return refused(codeBadValue, "X-Request-Id", "X-Request-Id holds a character that is no printable ASCII")
		}
	}
	return nil
}

// forged says that an id holds the marks by which stock engines find their peer.
func forged(id string) bool {
	return strings.Contains(id, "___prefill_addr_") || strings.Contains(id, "___decode_addr_")
}

// spelled are the fields that the router reads or writes.
var spelled = []string{
	"kv_transfer_params", "request_id", "model", "stream", "stream_options", "prompt", "prompt_embeds", "n", "best_of",
	"use_beam_search", "echo", "logprobs", "prompt_logprobs", "max_tokens", "max_completion_tokens", "min_tokens",
	"ignore_eos", "stop", "stop_token_ids",
}

// checkSpelling refuses those fields in another letter case. Engines that tell no
// case apart would take them for what the router has checked or set.
func checkSpelling(_ string, d document) *failure {
	for _, f := range d.fields {
		for _, key := range spelled {
			if f.key != key && strings.EqualFold(f.key, key) {
				return refused(codeReserved, key, fmt.Sprintf("%.64q must be written %s", f.key, key))
			}
		}
	}
	return nil
}

// checkReserved refuses fields by which a client would steer a transfer.
func checkReserved(_ string, d document) *failure {
	if d.has("kv_transfer_params") {
		return refused(codeReserved, "kv_transfer_params", "kv_transfer_params is set by the router only")
	}
	if id := d.field("request_id"); id.Type != gjson.Null && (id.Type != gjson.String || forged(id.Str)) {
		return refused(codeReserved, "request_id", "request_id must be a string without marks of peer addresses, which only the router may set")
	}
	return nil
}

// checkFanOut refuses what makes several sequences of one request, since one
// transfer hands over one.
func checkFanOut(_ string, d document) *failure {
	for _, key := range []string{"n", "best_of"} {
		if v := d.field(key); v.Type != gjson.Null && (v.Type != gjson.Number || v.Num != 1) {
			return refused(codeUnsupported, key, fmt.Sprintf("%s is %.32s; with prefill and decode apart only 1 can be served", key, v.Raw))
		}
	}
	if v := d.field("use_beam_search"); v.Type != gjson.Null && v.Type != gjson.False {
		return refused(codeUnsupported, "use_beam_search", "use_beam_search can't be served with prefill and decode apart")
	}
	if d.has("prompt_logprobs") {
		return refused(codeUnsupported, "prompt_logprobs", "prompt_logprobs can't be served: decode, which answers, does not compute the prompt")
	}
	return nil
}

// checkPrompt refuses several prompts in one request.
func checkPrompt(endpoint string, d document) *failure {
	if endpoint == chatCompletions {
		return nil
	}
	if d.field("echo").Bool() && d.has("logprobs") {
		return refused(codeUnsupported, "echo", "echo with logprobs can't be served: decode, which answers, does not compute the prompt")
	}
	for _, key := range []string{"prompt", "prompt_embeds"} {
		if batch(d.raw(key)) {
			return refused(codeUnsupported, key, key+" holds several prompts; send each in a request of its own")
		}
	}
	return nil
}

// batch says that a prompt is a list of texts or of lists. A list of numbers is one
// prompt in tokens, a list of one text is one prompt. A text is not unescaped for this.
func batch(prompt string) bool {
	if !strings.HasPrefix(prompt, "[") {
		return false
	}
	n := 0
	gjson.Parse(prompt).ForEach(func(_, item gjson.Result) bool {
		if item.Type == gjson.Number {
			return false
		}
		n++
		return n < 2
	})
	return n > 1
}

// noModel is the answer to a model that nobody serves.
func noModel(r *Refusal) *failure {
	return &failure{status: http.StatusNotFound, code: r.Rule, param: "model", text: r.Text}
}
