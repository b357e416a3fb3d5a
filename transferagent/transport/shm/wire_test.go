//go:build linux

package shm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/transferagent/transport"
)

func FuzzMessage(f *testing.F) {
	f.Add(message{kind: record, memory: 3, seq: 9, bytes: 77, flow: transport.Flow{
		Transfer: "t", Writer: transport.Rank{DP: 1, TP: 2}, Reader: transport.Rank{DP: -1, TP: 4},
	}}.append(nil))
	f.Add(message{kind: hello, flow: transport.Flow{Transfer: strings.Repeat("x", tokenSize)}}.append(nil))
	f.Add(address{name: "m"}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parse(b); err == nil {
			given := bytes.Clone(b)
			copy(given[12:16], []byte{0, 0, 0, 0}) // not used
			if again := m.append(nil); !bytes.Equal(again, given) {
				t.Fatalf("read %x, written %x", given, again)
			}
		}
		if a, err := parseAddress(b); err == nil {
			if strings.ContainsAny(a.name, "/\x00") || !bytes.Equal(a.bytes(), b) {
				t.Fatalf("address %x", b)
			}
		}
	})
}
