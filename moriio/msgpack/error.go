package msgpack

import "fmt"

// The reasons of an Error. They are few and fixed, so that they can label a metric.
const (
	Truncated   = "truncated"    // ends before its last value
	TooLong     = "too-long"     // a length or count is over its cap
	BadField    = "bad-field"    // a field is missing, twice there, of another type or out of range
	UnknownType = "unknown-type" // the message is of a type that the parser does not know
	Malformed   = "malformed"    // not MessagePack, or more than one value
)

// Error says why a message was refused.
type Error struct {
	reason string
	field  string
	text   string
}

// Errorf makes an Error. Field may be empty when the whole message is meant.
func Errorf(reason, field, format string, args ...any) *Error {
	return &Error{reason: reason, field: field, text: fmt.Sprintf(format, args...)}
}

// Reason is one of the constants of this package.
func (e *Error) Reason() string { return e.reason }

// Field names the field that was wrong; empty when the whole message was.
func (e *Error) Field() string { return e.field }

func (e *Error) Error() string {
	if e.field == "" {
		return e.reason + ": " + e.text
	}
	return e.reason + ": " + e.field + " " + e.text
}
