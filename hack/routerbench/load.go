package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// cell is one kind of load.
type cell struct {
	name        string
	connections int
	stream      bool
	tokens      int
	gap         time.Duration // between the tokens of an engine
	prompt      int           // bytes
	// fails: prefill fails and decode waits, and the time to the error is measured. Others
	// wait for decode then, or turn away all requests for a minute.
	fails bool
}

var cells = []cell{
	{name: "whole1", connections: 1, tokens: 16},
	{name: "whole16", connections: 16, tokens: 16},
	{name: "whole64", connections: 64, tokens: 16},
	{name: "whole256", connections: 256, tokens: 16},
	{name: "stream1", connections: 1, stream: true, tokens: 128},
	{name: "stream16", connections: 16, stream: true, tokens: 128},
	{name: "stream64", connections: 64, stream: true, tokens: 128},
	{name: "paced64", connections: 64, stream: true, tokens: 64, gap: 5 * time.Millisecond},
	{name: "prompt64k", connections: 16, tokens: 16, prompt: 64 << 10},
	{name: "error", connections: 1, tokens: 16, fails: true},
}

// measured is what one load saw.
type measured struct {
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	First    string  `json:"first_error,omitempty"`
	Rate     float64 `json:"requests_per_s"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	CPU      float64 `json:"cpu_s_per_1k"` // of the router
	RSS      float64 `json:"rss_mib"`      // of the router
}

// client keeps one connection, as cheap as it gets.
type client struct {
	host string
	conn net.Conn
	from *bufio.Reader
}

// answerWithin bounds one request.
const answerWithin = 60 * time.Second

func (c *client) do(request []byte, stream bool) (status int, err error) {
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.host, 5*time.Second); err != nil { //nolint:noctx // bounded
			return 0, err
		}
		c.from = bufio.NewReaderSize(c.conn, 32<<10)
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(c.from, nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	if stream && response.StatusCode == http.StatusOK {
		err = wholeStream(response.Body)
	} else {
		_, err = io.Copy(io.Discard, response.Body)
	}
	if response.Close {
		c.close()
	}
	return response.StatusCode, err
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close() //nolint:errcheck // it is of no more use
		c.conn = nil
	}
}

// wholeStream reads a stream, which must end in [DONE].
func wholeStream(r io.Reader) error {
	b := bufio.NewReaderSize(r, 16<<10)
	done, tokens := false, 0
	for {
		line, err := b.ReadSlice('\n')
		switch {
		case bytes.HasPrefix(line, []byte("data: [DONE]")):
			done = true
		case bytes.HasPrefix(line, []byte("data: ")):
			tokens++
		}
		if err == io.EOF && done {
			return nil
		}
		if err != nil {
			return fmt.Errorf("stream ended after %d tokens: %w", tokens, err)
		}
	}
}

// post makes the bytes of a request.
func post(host, body string) []byte {
	return fmt.Appendf(nil, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body)
}

// run puts a load on a contender for a while.
func (c cell) run(to *contender, d time.Duration) measured {
	prompt := strings.Repeat("x ", c.prompt/2) + "a short prompt"
	body := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":%d,"stream":%t,"temperature":0}`, prompt, c.tokens, c.stream)
	first := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":1,"stream":false,"temperature":0,"kv_transfer_params":{"do_remote_decode":true}}`, prompt)
	var (
		mu     sync.Mutex
		times  []time.Duration
		result measured
		group  sync.WaitGroup
	)
	used, start := to.cpu(), time.Now()
	for range c.connections {
		group.Go(func() {
			mine, errors, why := c.loop(to, body, first, start.Add(d))
			mu.Lock()
			defer mu.Unlock()
			times = append(times, mine...)
			result.Errors += errors
			if why != nil {
				result.First = why.Error()
			}
		})
	}
	group.Wait()
	took := time.Since(start).Seconds()
	used = to.cpu() - used
	slices.Sort(times)
	result.Requests, result.Rate, result.RSS = len(times), float64(len(times))/took, to.rss()
	if n := len(times); n > 0 {
		result.P50, result.P99 = ms(times[n/2]), ms(times[n*99/100])
		result.CPU = used / float64(n) * 1000
	}
	return result
}

// loop is one connection's share: one request after the other.
func (c cell) loop(to *contender, body, first string, until time.Time) (times []time.Duration, errors int, why error) {
	final, prefill := client{host: to.host}, client{host: to.prefill}
	defer final.close()
	defer prefill.close()
	request, leg := post(to.host, body), post(to.prefill, first)
	for time.Now().Before(until) {
		start := time.Now()
		status, err := http.StatusOK, error(nil)
		if to.prefill != "" {
			status, err = prefill.do(leg, false)
		}
		if err == nil && status == http.StatusOK {
			status, err = final.do(request, c.stream)
		}
		if err == nil && (status == http.StatusOK) == c.fails {
			err = fmt.Errorf("status %d", status)
		}
		if err != nil {
			errors, why = errors+1, err
			continue
		}
		times = append(times, time.Since(start))
	}
	return times, errors, why
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
