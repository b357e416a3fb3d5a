package moriio

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

const (
	maxPort = 65535
	maxHost = 253
)

// FormatZMQAddress names the control ports of an instance the way MoRIIO does:
// "host:IP,handshake:PORT,notify:PORT". An IPv6 host has no brackets.
func FormatZMQAddress(host string, handshake, notify int) string {
	return "host:" + host + ",handshake:" + strconv.Itoa(handshake) + ",notify:" + strconv.Itoa(notify)
}

// ParseZMQAddress reads what FormatZMQAddress writes. Host is an IP address or a
// DNS name, the ports are 1 to 65535; the parts may come in any order, with blanks
// around them, and unknown ones are ignored. Nothing says that the address is the
// sender's. The error is an *Error.
func ParseZMQAddress(s string) (host string, handshake, notify int, err error) {
	if len(s) > MaxString {
		return "", 0, 0, msgpack.Errorf(TooLong, "zmq_address", "has %d bytes, the limit is %d", len(s), MaxString)
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(part, ":")
		key = strings.TrimSpace(key)
		if _, twice := parts[key]; !ok || twice {
			return "", 0, 0, msgpack.Errorf(BadField, "zmq_address", "has the part %.64q, which is no key:value or comes twice", part)
		}
		parts[key] = strings.TrimSpace(value)
	}
	if host = parts["host"]; !validHost(host) {
		return "", 0, 0, msgpack.Errorf(BadField, "zmq_address", "has the host %.64q, which is neither an IP address nor a DNS name", host)
	}
	if handshake, err = parsePort("zmq_address", parts["handshake"]); err != nil {
		return "", 0, 0, err
	}
	if notify, err = parsePort("zmq_address", parts["notify"]); err != nil {
		return "", 0, 0, err
	}
	return host, handshake, notify, nil
}

// ParseHTTPAddress reads "host:port". Stock engines write an IPv6 host without
// brackets, so the last colon divides. The error is an *Error.
func ParseHTTPAddress(s string) (host string, port int, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, msgpack.Errorf(BadField, "http_address", "is %.64q, which has no port", s)
	}
	if port, err = parsePort("http_address", s[i+1:]); err != nil {
		return "", 0, err
	}
	host = s[:i]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	if !validHost(host) {
		return "", 0, msgpack.Errorf(BadField, "http_address", "has the host %.64q, which is neither an IP address nor a DNS name", host)
	}
	return host, port, nil
}

// parsePort takes decimal digits only: no sign, blank or underscore.
func parsePort(field, s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, msgpack.Errorf(BadField, field, "has the port %.16q, allowed are 1 to %d", s, maxPort)
	}
	return int(n), nil
}

// validHost accepts an IP address without zone, or a DNS name.
func validHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	if s == "" || len(s) > maxHost {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if !labelByte(label[i]) {
				return false
			}
		}
	}
	return true
}

func labelByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}
