package router

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/pdpool/pdpool/kvlayout"
)

const maxReasonText = 512 // bytes of what a client is told of a reason

// Addresses in a text: IPv4 ones and IPv6 ones in brackets, each with a port or
// without, and what may be a bare IPv6 one. What stands before them does not matter.
var (
	addresses = regexp.MustCompile(`\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[^\]\s"]*)?\](?::\d{1,5})?`)
	bare      = regexp.MustCompile(`[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}(?:%[0-9A-Za-z._-]+)?`)
)

// sockets finds unix sockets and ZeroMQ's ipc endpoints by their schemes, and what
// ends like the path of one.
var sockets = regexp.MustCompile(`(?:unix(?:gram|packet)?|ipc)[ :](?:@|\\?/)(?:[^\s"'\\,;:()]|\\/)*|(?:[^\s"'\\,;:()=]|\\[^"])*\.sock\b`)

// masker takes the names and addresses of pods out of the texts of errors.
type masker []named

// named is a name that clients are not told, and what they are told instead.
type named struct{ name, instead string }

// masker knows what pods are called: those of the pair by their roles, and all others
// that the router knows.
func (s *Server) masker(p pair) masker {
	var m masker
	m = m.with(p.prefill.instance, "the "+string(kvlayout.Prefill)+" pod")
	m = m.with(p.decode.instance, "the "+string(kvlayout.Decode)+" pod")
	for _, i := range s.Registry.current.Load().instances {
		m = m.with(i, "a "+string(i.Role)+" pod")
	}
	// A name may begin with another one.
	slices.SortStableFunc(m, func(a, b named) int { return cmp.Compare(len(b.name), len(a.name)) })
	return m
}

func (m masker) with(i *Instance, instead string) masker {
	for n := range i.Pods {
		pod := &i.Pods[n]
		for _, k := range []named{{pod.Host, instead}, {pod.Control, instead}, {pod.Name, instead}, {pod.Node, "a node"}} {
			if len(k.name) > 3 {
				m = append(m, k)
			}
		}
	}
	return m
}

// text puts roles in place of the names and addresses of pods, and says nothing of
// other addresses.
func (m masker) text(text string) string {
	for _, n := range m {
		if strings.Contains(text, n.name) {
			known := regexp.MustCompile(`\[?\b` + regexp.QuoteMeta(n.name) + `\b\]?(?::\d{1,5}\b)?`)
			text = known.ReplaceAllLiteralString(text, n.instead)
		}
	}
	text = sockets.ReplaceAllLiteralString(text, "a socket")
	text = addresses.ReplaceAllLiteralString(text, "an address")
	return maskBare(text)
}

// maskBare masks IPv6 addresses that stand without brackets.
func maskBare(text string) string {
	var out strings.Builder
	from := 0
	for _, at := range bare.FindAllStringIndex(text, -1) {
		candidate := strings.TrimRight(text[at[0]:at[1]], ".-")
		if strings.Count(candidate, ":") < len(candidate) && !within(text, at) {
			if _, err := netip.ParseAddr(candidate); err == nil {
				out.WriteString(text[from:at[0]] + "an address")
				from = at[0] + len(candidate)
			}
		}
	}
	return out.String() + text[from:]
}

// within says that what stands at is the middle of a word, as :: is of a name in C++.
func within(text string, at []int) bool {
	letter := func(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }
	return at[0] > 0 && letter(text[at[0]-1]) || at[1] < len(text) && letter(text[at[1]])
}

// body masks an error's body. JSON stays JSON: its strings are masked as what they
// say, so that an escape hides nothing, and what has nothing to mask keeps its bytes.
func (m masker) body(text string) string {
	if !gjson.Valid(text) {
		return m.text(text)
	}
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '"')
		if i < 0 {
			return out.String() + text
		}
		end := stringEnd(text, i)
		out.WriteString(text[:i] + m.quoted(text[i:end]))
		text = text[end:]
	}
}

// quoted masks a string of JSON with its quotes.
func (m masker) quoted(text string) string {
	said := gjson.Parse(text).Str
	told := m.text(said)
	if told == said {
		return text
	}
	out, err := json.Marshal(told)
	if err != nil {
		panic(err) // a string
	}
	return string(out)
}

// event masks an event of a stream, line by line.
func (m masker) event(text string) string {
	var out strings.Builder
	for rest := []byte(text); len(rest) > 0; {
		var line, end []byte
		line, end, rest = cutLine(rest)
		if data, ok := bytes.CutPrefix(line, dataKey); ok {
			out.WriteString("data:" + m.body(string(data)))
		} else {
			out.WriteString(m.text(string(line)))
		}
		out.Write(end)
	}
	return out.String()
}

// conceal makes a short text for a client, without names and addresses of pods.
func (m masker) conceal(text string) string {
	text = m.text(strings.ToValidUTF8(text, "?"))
	if len(text) > maxReasonText {
		text = strings.ToValidUTF8(text[:maxReasonText], "") + "..."
	}
	return text
}
