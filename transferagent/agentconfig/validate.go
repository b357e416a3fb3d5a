package agentconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

const (
	maxDegree  = 1024
	maxSeconds = 24 * 60 * 60
	maxPort    = math.MaxUint16
	maxText    = 1024
	maxRouters = 64

	// maxSocketPath is what a unix socket's address holds, less its final 0.
	maxSocketPath = 107
)

// InvalidError names everything that is wrong, each problem a sentence with the
// field and its value.
type InvalidError struct{ Problems []string }

func (e *InvalidError) Error() string { return strings.Join(e.Problems, "; ") }

// problems collects what is wrong.
type problems []string

func (p *problems) add(format string, args ...any) {
	*p = append(*p, fmt.Sprintf(format, args...))
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &InvalidError{Problems: p}
}

func (p *problems) text(field, value string) {
	switch {
	case value == "":
		p.add("%s is empty", field)
	case len(value) > maxText:
		p.add("%s has %d bytes, the limit is %d", field, len(value), maxText)
	}
}

func (p *problems) number(field string, value, low, high int) {
	if value < low || value > high {
		p.add("%s is %d, allowed are %d to %d", field, value, low, high)
	}
}

func oneOf[T ~string](p *problems, field string, value T, allowed ...T) {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		if a == value {
			return
		}
		names[i] = string(a)
	}
	p.add("%s is %q, allowed are %s", field, value, strings.Join(names, ", "))
}

// Validate returns an *InvalidError with all that is wrong, nil when nothing is.
// It judges the document alone; which layouts fit together is kvlayout's to say.
func (c *Config) Validate() error {
	var p problems
	p.number("version", c.Version, oldest, Version)
	p.text("namespace", c.Namespace)
	p.text("pool", c.Pool)
	p.text("poolUID", c.PoolUID)
	p.text("revision", c.Revision)
	p.text("pairing", c.Pairing)
	p.text("model", c.Model)
	p.text("served", c.Served)
	p.number("replica", c.Replica, 0, math.MaxInt32)
	p.number("attempt", c.Attempt, 0, math.MaxInt32)
	oneOf(&p, "role", c.Role, kvlayout.Prefill, kvlayout.Decode)
	oneOf(&p, "engine", c.Engine, kvlayout.VLLM, kvlayout.SGLang, kvlayout.Simulator)
	oneOf(&p, "mover", c.Mover, kvlayout.MoverAgent, kvlayout.MoverEngine)
	oneOf(&p, "mode", c.Mode, kvlayout.Write)
	p.backend(c.Backend, c.Mover)
	p.version(c.EngineVersion)
	p.place(c.Layout, c.DPStart, c.Pod, c.Pods)
	p.cache(c.Block, c.KVType, c.KV, c.Mover)
	c.secrets(&p)
	p.number("timeouts.transfer", c.Timeouts.Transfer, 1, maxSeconds)
	p.number("timeouts.defer", c.Timeouts.Defer, 1, maxSeconds)
	p.number("timeouts.receiveAbort", c.Timeouts.ReceiveAbort, 1, maxSeconds)
	p.number("timeouts.drain", c.Timeouts.Drain, 0, maxSeconds)
	switch c.Mover {
	case kvlayout.MoverAgent:
		c.validateAgent(&p)
	case kvlayout.MoverEngine:
		c.validateEngine(&p)
	case kvlayout.MoverAuto: // not a mover here; said above
	}
	p.ports(c.ranges())
	return p.err()
}

// secrets checks where secrets are and what the drain token's hash looks like.
func (c *Config) secrets(p *problems) {
	if c.KeyDir != "" && (!path.IsAbs(c.KeyDir) || len(c.KeyDir) > maxText) {
		p.add("keyDir is %.128q, it must be an absolute path of at most %d bytes", c.KeyDir, maxText)
	}
	if sum, err := hex.DecodeString(c.DrainToken); err != nil || len(sum) != 0 && len(sum) != sha256.Size {
		p.add("drainToken is %.128q, it must be a SHA-256 of %d hex digits", c.DrainToken, hex.EncodedLen(sha256.Size))
	}
}

// place checks the degrees and which of the replica's ranks the pod holds.
func (p *problems) place(l kvlayout.Layout, dpStart, pod, pods int) {
	l = l.Defaulted()
	before := len(*p)
	p.number("layout.tp", l.TP, 1, maxDegree)
	p.number("layout.pp", l.PP, 1, maxDegree)
	p.number("layout.dp", l.DP, 1, maxDegree)
	p.number("layout.dpLocal", l.DPLocal, 1, maxDegree)
	p.number("layout.dcp", l.DCP, 1, maxDegree)
	p.number("layout.interleave", l.Interleave, 1, math.MaxInt32)
	p.number("pods", pods, 1, maxDegree)
	if len(*p) > before {
		return
	}
	p.number("pod", pod, 0, pods-1)
	if l.TP%l.DCP != 0 {
		p.add("layout.dcp is %d, which does not divide layout.tp %d", l.DCP, l.TP)
	}
	if dpStart < 0 || dpStart > l.DP-l.DPLocal {
		p.add("dpStart is %d, but with layout.dpLocal %d it must be 0 to %d for layout.dp %d", dpStart, l.DPLocal, l.DP-l.DPLocal, l.DP)
	}
}

func (p *problems) cache(block int, t kvlayout.KVType, g kvlayout.Geometry, m kvlayout.Mover) {
	p.number("blockSize", block, 1, math.MaxInt32)
	if t.Bytes() == 0 {
		p.add("kvType is %q, which is not known", t)
	}
	if g == (kvlayout.Geometry{}) && m == kvlayout.MoverEngine {
		return // the engine moves the bytes itself and knows its model
	}
	oneOf(p, "geometry.kind", g.Kind, kvlayout.MLA, kvlayout.GQA)
	p.number("geometry.layers", g.Layers, 1, math.MaxInt32)
	p.number("geometry.kvHeads", g.KVHeads, 1, math.MaxInt32)
	p.number("geometry.headValues", g.HeadValues, 1, math.MaxInt32)
}

// backend checks that the mover has the backend.
func (p *problems) backend(b Backend, m kvlayout.Mover) {
	switch m {
	case kvlayout.MoverAgent:
		oneOf(p, "backend", b, TCP, SharedMemory)
	case kvlayout.MoverEngine:
		oneOf(p, "backend", b, RDMA, XGMI)
	case kvlayout.MoverAuto: // not a mover here; said elsewhere
	}
}

// version checks an engine's version, which may be unknown.
func (p *problems) version(v string) {
	if len(v) > maxText {
		p.add("engineVersion has %d bytes, the limit is %d", len(v), maxText)
	}
}

func (c *Config) validateAgent(p *problems) {
	if !path.IsAbs(c.KVSocket) || len(c.KVSocket) > maxSocketPath {
		p.add("kvSocket is %q, it must be an absolute path of at most %d bytes", c.KVSocket, maxSocketPath)
	}
	if c.Backend == SharedMemory && !path.IsAbs(c.SharedDir) {
		p.add("sharedDir is %q, it must be an absolute path", c.SharedDir)
	}
	if len(c.Routers) > 0 {
		p.add("routers has %d entries, but with mover %s nothing registers", len(c.Routers), c.Mover)
	}
}

func (c *Config) validateEngine(p *problems) {
	if len(c.Routers) > maxRouters {
		p.add("routers has %d entries, the limit is %d", len(c.Routers), maxRouters)
		return
	}
	for i, r := range c.Routers {
		if !validAddress(r) {
			p.add("routers[%d] is %.128q, which is no host:port", i, r)
		}
	}
}

// validAddress accepts host:port and [IPv6]:port. The host is not looked up.
func validAddress(s string) bool {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a.Port() != 0
	}
	host, port, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	return ok && host != "" && !strings.ContainsAny(host, " []/") && err == nil && n > 0
}

// portRange is count ports from first on; 0 as the first says that there are none.
type portRange struct {
	name         string
	first, count int
	needed       bool
}

// ranges are all ports of the pod, with what this configuration needs.
func (c *Config) ranges() []portRange {
	agent, engine := c.Mover == kvlayout.MoverAgent, c.Mover == kvlayout.MoverEngine
	l := c.Layout.Defaulted()
	// Rank (dp, tp) binds base + dp + tp.
	perRank := max(1, l.DPLocal+l.TP-1)
	return []portRange{
		{"http", c.Ports.HTTP, 1, true},
		{"agent", c.Ports.Agent, 1, true},
		{"handshake", c.Ports.Handshake, 1, agent},
		{"notify", c.Ports.Notify, 1, agent},
		{"data", c.Ports.Data, 1, agent && c.Backend == TCP},
		{"ping", c.Ports.Ping, 1, engine},
		{"metrics", c.Ports.Metrics, 1, false},
		{"master", c.Ports.Master, 1, false},
		{"rpc", c.Ports.RPC, 1, false},
		{"vllm", c.Ports.VLLM, 1, false},
		{"engineHandshake", c.Ports.EngineHandshake, perRank, engine},
		{"engineNotify", c.Ports.EngineNotify, perRank, engine},
	}
}

// ports checks that what is needed is there and that no two ranges overlap.
func (p *problems) ports(ranges []portRange) {
	for i, r := range ranges {
		low := 0
		if r.needed {
			low = 1
		}
		p.number("ports."+r.name, r.first, low, maxPort-r.count+1)
		for _, other := range ranges[:i] {
			if r.first > 0 && other.first > 0 && r.first < other.first+other.count && other.first < r.first+r.count {
				p.add("ports.%s (%d, %d ports) overlaps ports.%s (%d, %d ports)", r.name, r.first, r.count, other.name, other.first, other.count)
			}
		}
	}
}
