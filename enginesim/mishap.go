package enginesim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// MishapHeader asks for a mishap of one request, in the words of --sim-fail.
const MishapHeader = "X-Sim-Fail"

// mishap is how a request fails on purpose, whatever else is well, for trials of who
// has sent it.
type mishap struct {
	status int  // answered at once; 0 for none
	hang   bool // nothing is said any more, until the client goes away
	cut    bool // the connection ends
	after  int  // tokens that are answered before; with a status always 0
	times  int  // requests that it strikes, 0 for all
}

// maxMishap bounds the numbers of a mishap.
const maxMishap = 1_000_000

// parseMishap reads "500", "503:times=2", "hang:after=3" or "cut:after=1,times=1". The
// empty text and "off" are none.
func parseMishap(text string) (*mishap, error) {
	name, list, _ := strings.Cut(text, ":")
	m := &mishap{}
	switch name {
	case "", "off":
		return nil, nil
	case "hang":
		m.hang = true
	case "cut":
		m.cut = true
	default:
		status, err := strconv.Atoi(name)
		if err != nil || status < 400 || status > 599 {
			return nil, fmt.Errorf("%.40q is not off, hang, cut or a status from 400 to 599", name)
		}
		m.status = status
	}
	if list == "" {
		return m, nil
	}
	var seen []string
	for part := range strings.SplitSeq(list, ",") {
		key, number, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > maxMishap || slices.Contains(seen, key) || !m.set(key, n) {
			return nil, fmt.Errorf("%.40q in %.40q: there are times= from 1, and after= for hang and cut, to %d", part, text, maxMishap)
		}
		seen = append(seen, key)
	}
	return m, nil
}

func (m *mishap) set(key string, n int) bool {
	switch {
	case key == "times" && n > 0:
		m.times = n
	case key == "after" && m.status == 0:
		m.after = n
	default:
		return false
	}
	return true
}

// mishaps are those of an instance.
type mishaps struct {
	mu  sync.Mutex
	now *mishap
}

func (s *mishaps) set(m *mishap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = m
}

// next is the mishap of a request, the one that it asks for before the instance's.
func (s *mishaps) next(r *http.Request) (*mishap, error) {
	if asked := r.Header.Get(MishapHeader); asked != "" {
		m, err := parseMishap(asked)
		if err != nil {
			return nil, badRequest("%s: %v", MishapHeader, err)
		}
		return m, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.now
	if m == nil || m.times == 0 {
		return m, nil
	}
	left := *m
	if left.times--; left.times > 0 {
		s.now = &left
	} else {
		s.now = nil
	}
	return m, nil
}

// errCut is what a request ends with whose connection is to be cut.
var errCut = errors.New("the connection is cut on purpose (--sim-fail)")

// strike does what is to happen before a token, the one of that number from 0. It
// returns nil when nothing is.
func (m *mishap) strike(gone <-chan struct{}, token int) error {
	switch {
	case m == nil || token < m.after:
		return nil
	case m.hang:
		<-gone
		return context.Canceled
	case m.cut:
		return errCut
	}
	return &statusError{m.status, "the request fails on purpose (--sim-fail)"}
}
