package pdpool

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// marks are stand-ins for what differs between the pods of a revision. An engine's
// command line is rendered once, with marks, and kept so; a pod gets the text with
// its own values. So a newer operator, which may render other flags, makes a lost
// pod anew exactly as it was. The value is the first of a thousand numbers that
// appear nowhere in what the user wrote.
type marks int

const firstMarks = 1_870_000_000 // ten digits, and still an int32 as ports have to be

// Places of the other marks behind those of a port block.
const (
	markDPStart = 100
	markLeader  = 101
	markDrain   = 102
)

// newMarks returns marks that don't occur in any of the texts.
func newMarks(texts ...string) marks {
	m := marks(firstMarks)
	for {
		prefix := strconv.Itoa(int(m) / 1000)
		used := false
		for _, t := range texts {
			used = used || strings.Contains(t, prefix)
		}
		if !used {
			return m
		}
		m += 1000
	}
}

func (m marks) ports() int     { return int(m) }
func (m marks) dpStart() int   { return int(m) + markDPStart }
func (m marks) drain() string  { return fmt.Sprintf("drain-%d", int(m)+markDrain) }
func (m marks) leader() string { return fmt.Sprintf("leader-%d", int(m)+markLeader) }

// values are what marks stand for in one pod.
type values struct {
	block   int // first port
	dpStart int
	leader  string
	drain   string // token
}

// fill replaces all marks in a rendered text.
func (m marks) fill(text []byte, v values) []byte {
	pairs := []string{m.leader(), v.leader, m.drain(), v.drain, strconv.Itoa(m.dpStart()), strconv.Itoa(v.dpStart)}
	for i := range BlockPorts {
		pairs = append(pairs, strconv.Itoa(m.ports()+i), strconv.Itoa(v.block+i))
	}
	var out bytes.Buffer
	// A bytes.Buffer takes every write.
	_, _ = strings.NewReplacer(pairs...).WriteString(&out, string(text))
	return out.Bytes()
}
