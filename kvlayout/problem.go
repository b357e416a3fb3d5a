package kvlayout

import "strings"

// Severity says what a problem does to a pool.
type Severity string

// Refuse: the layout cannot work, that is certain. Warn: it may not work, it costs
// a lot, or what decides it is unknown.
const (
	Refuse Severity = "Refuse"
	Warn   Severity = "Warn"
)

// Problem is one broken rule, told so that a user can act on it.
type Problem struct {
	Rule     string   `json:"rule"` // id in the catalog, see Rules
	Severity Severity `json:"severity"`
	// Field is the path in the PDPool spec to change, such as
	// decode.layout.interleave; or prefill.layout.pp and decode.layout.pp, which are of
	// command lines alone: a pool has no pipeline stages.
	Field   string `json:"field"`
	Message string `json:"message"` // what is wrong, with its numbers
	Reason  string `json:"reason"`  // why that cannot work
	Fix     string `json:"fix"`     // which field to set to what
	// Set is the first change of Fix where that is values for fields of the spec, as
	// FIELD=VALUE with commas between changes that belong together; else "".
	Set string `json:"set,omitempty"`

	ways *[]way // to fix it, until one is chosen: nil in all that Check and Compatible return
}

// same says that two problems are told in the same words.
func (p Problem) same(o Problem) bool {
	p.ways, o.ways = nil, nil
	return p == o
}

// String is the problem in one line: "rule: message; reason; fix".
func (p Problem) String() string {
	return p.Rule + ": " + strings.Join([]string{p.Message, p.Reason, p.Fix}, "; ")
}

// Refused reports whether one of the problems refuses the pool.
func Refused(problems []Problem) bool {
	for _, p := range problems {
		if p.Severity == Refuse {
			return true
		}
	}
	return false
}

// Engine is the serving engine of a pool.
type Engine string

// The engines. The simulator has vLLM's rules, without version bounds.
const (
	VLLM      Engine = "vLLM"
	SGLang    Engine = "SGLang"
	Simulator Engine = "Simulator"
)

// Mover says who moves the bytes of a transfer.
type Mover string

// The movers: the engine's own connector, or the transfer agent. Auto lets
// ResolveMover choose.
const (
	MoverAuto   Mover = "Auto"
	MoverEngine Mover = "Engine"
	MoverAgent  Mover = "Agent"
)

// Mode says which side moves the cache.
type Mode string

// In Write, the default, prefill writes to decode; in Read, decode reads from
// prefill.
const (
	Write Mode = "Write"
	Read  Mode = "Read"
)
