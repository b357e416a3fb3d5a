package moriio

import (
	"strings"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

const (
	prefillMark = "___prefill_addr_"
	decodeMark  = "___decode_addr_"
	hexLength   = 32

	// maxRequestID bounds what ParseRequestID searches, in bytes.
	maxRequestID = 4 << 10
)

// RequestID is the id that tells both engines of a pair where the other is: the
// ZMQ addresses of prefill and decode and 32 lower-case hexadecimal digits. Both
// legs of a request carry the same one.
func RequestID(prefillZMQ, decodeZMQ, hex32 string) string {
	return prefillMark + prefillZMQ + decodeMark + decodeZMQ + "_" + hex32
}

// ParseRequestID finds the addresses and the digits in a request id that an engine
// has wrapped in a prefix and a suffix. Both addresses must be well-formed. The
// suffix differs between the engines of one request: what both share is the
// transfer id, not this. The error is an *Error.
func ParseRequestID(id string) (prefillZMQ, decodeZMQ, hex32 string, err error) {
	if len(id) > maxRequestID {
		return "", "", "", msgpack.Errorf(TooLong, "request_id", "has %d bytes, the limit is %d", len(id), maxRequestID)
	}
	_, rest, ok := strings.Cut(id, prefillMark)
	if !ok {
		return "", "", "", msgpack.Errorf(BadField, "request_id", "has no prefill address")
	}
	prefillZMQ, rest, ok = strings.Cut(rest, decodeMark)
	if !ok {
		return "", "", "", msgpack.Errorf(BadField, "request_id", "has no decode address")
	}
	decodeZMQ, hex32, ok = cutDigits(rest)
	if !ok {
		return "", "", "", msgpack.Errorf(BadField, "request_id", "does not end in %d hexadecimal digits", hexLength)
	}
	for _, address := range []string{prefillZMQ, decodeZMQ} {
		if _, _, _, err := ParseZMQAddress(address); err != nil {
			return "", "", "", err
		}
	}
	return prefillZMQ, decodeZMQ, hex32, nil
}

// cutDigits finds the last underscore that 32 hexadecimal digits follow, with the
// end of the string or a dash behind them.
func cutDigits(s string) (before, digits string, ok bool) {
	for i := len(s) - hexLength - 1; i >= 0; i-- {
		end := i + 1 + hexLength
		if s[i] == '_' && (end == len(s) || s[end] == '-') && isHex(s[i+1:end]) {
			return s[:i], s[i+1 : end], true
		}
	}
	return "", "", false
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
