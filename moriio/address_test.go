package moriio_test

import (
	"strings"
	"testing"

	"github.com/pdpool/pdpool/moriio"
)

func TestParseZMQAddress(t *testing.T) {
	for _, tc := range []struct {
		in                string
		host              string
		handshake, notify int
	}{
		{"host:10.0.0.1,handshake:6301,notify:61005", "10.0.0.1", 6301, 61005},
		{"host:::1,handshake:1,notify:65535", "::1", 1, 65535},
		{" notify : 2 , host : node-1.example , handshake : 3 ", "node-1.example", 3, 2},
		{"host:h,handshake:1,notify:2,extra:x", "h", 1, 2},
	} {
		host, handshake, notify, err := moriio.ParseZMQAddress(tc.in)
		if err != nil || host != tc.host || handshake != tc.handshake || notify != tc.notify {
			t.Errorf("%q: %q %d %d %v", tc.in, host, handshake, notify, err)
		}
	}
	for _, in := range []string{
		"", "host:10.0.0.1", "host:10.0.0.1,handshake:6301", "host:,handshake:1,notify:2", "handshake:1,notify:2",
		"host:h,handshake:0,notify:2", "host:h,handshake:65536,notify:2", "host:h,handshake:-1,notify:2",
		"host:h,handshake:+1,notify:2", "host:h,handshake:1_0,notify:2", "host:h,handshake:0x1,notify:2",
		"host:h,host:h,handshake:1,notify:2", "host:h/path,handshake:1,notify:2", "host:a b,handshake:1,notify:2",
		"host:[::1],handshake:1,notify:2", "host:fe80::1%eth0,handshake:1,notify:2", "host:h@x,handshake:1,notify:2",
		"host:-h,handshake:1,notify:2", "host:a..b,handshake:1,notify:2", "host:h,handshake:1,notify:2,",
		"host:" + strings.Repeat("a", 64) + ",handshake:1,notify:2",
		"host:" + strings.Repeat("a.", 200) + "a,handshake:1,notify:2",
		strings.Repeat("x", moriio.MaxString+1),
	} {
		if host, handshake, notify, err := moriio.ParseZMQAddress(in); err == nil {
			t.Errorf("%.80q: accepted as %q %d %d", in, host, handshake, notify)
		}
	}
}

func TestParseHTTPAddress(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1:8100": "10.0.0.1", "[fd00::1]:8100": "fd00::1", "fd00::1:8100": "fd00::1", "pod-0.svc:8100": "pod-0.svc",
	} {
		if host, port, err := moriio.ParseHTTPAddress(in); err != nil || host != want || port != 8100 {
			t.Errorf("%q: %q %d %v", in, host, port, err)
		}
	}
	for _, in := range []string{"", ":", ":80", "h:", "h:0", "h:65536", "h", "http://h:80", "u@h:80", "h/x:80"} {
		if host, port, err := moriio.ParseHTTPAddress(in); err == nil {
			t.Errorf("%q: accepted as %q %d", in, host, port)
		}
	}
}

func TestRequestID(t *testing.T) {
	const digits = "0123456789abcdef0123456789abcdef"
	prefill := moriio.FormatZMQAddress("10.0.0.1", 6301, 61005)
	decode := moriio.FormatZMQAddress("fd00::2", 6302, 61006)
	id := moriio.RequestID(prefill, decode, digits)
	if want := "___prefill_addr_host:10.0.0.1,handshake:6301,notify:61005___decode_addr_host:fd00::2,handshake:6302,notify:61006_" + digits; id != want {
		t.Errorf("id is %q, want %q", id, want)
	}
	for _, wrapped := range []string{id, "cmpl-" + id + "-0-0123abcd", "chatcmpl-" + id + "-" + digits, id + "-" + digits[:8]} {
		p, d, h, err := moriio.ParseRequestID(wrapped)
		if err != nil || p != prefill || d != decode || h != digits {
			t.Errorf("%q: %q %q %q %v", wrapped, p, d, h, err)
		}
	}
	for _, in := range []string{
		"", digits, "cmpl-0-12345678", id[:len(id)-1], id + "x", strings.ToUpper(id),
		moriio.RequestID("host:h,handshake:1", decode, digits), moriio.RequestID(prefill, "x", digits),
		moriio.RequestID(prefill, decode, strings.ToUpper(digits)), "___decode_addr_" + decode + "_" + digits,
		strings.Repeat("x", 5000) + id,
	} {
		if p, d, h, err := moriio.ParseRequestID(in); err == nil {
			t.Errorf("%.80q: accepted as %q %q %q", in, p, d, h)
		}
	}
}
