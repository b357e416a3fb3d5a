package transferagent

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// maxToken bounds the token of /debug, in bytes.
const maxToken = 1 << 10

// gate keeps strangers from the paths that are not for everybody. What it turns away
// is counted.
type gate struct {
	token string // path of the file with the token of /debug; empty: there is none
	drain string // hex SHA-256 of the token of /drain; empty: anybody may drain
	drop  func(reason string)
}

func newGate(cfg *agentconfig.Config, m *metrics) gate {
	g := gate{drain: cfg.DrainToken, drop: func(reason string) { m.drop(portHTTP, reason) }}
	if cfg.KeyDir != "" {
		g.token = filepath.Join(cfg.KeyDir, agentconfig.TokenFile)
	}
	return g
}

// debug lets in who comes by loopback, which is where a port-forward ends, and who
// has the pool's token.
func (g gate) debug(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		at, err := netip.ParseAddrPort(r.RemoteAddr)
		if err == nil && at.Addr().Unmap().IsLoopback() || g.bears(r) {
			next(w, r)
			return
		}
		g.refuse(w, "debug-token", "this is answered to local clients and to those that send the pool's token")
	}
}

// bears says that a request has the token that the file has now.
func (g gate) bears(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || g.token == "" {
		return false
	}
	f, err := os.Open(g.token)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	want, err := io.ReadAll(io.LimitReader(f, maxToken))
	want = bytes.TrimSpace(want)
	return err == nil && len(want) > 0 && subtle.ConstantTimeCompare([]byte(given), want) == 1
}

// drains lets in who has the token that the operator gave this pod's preStop hook.
func (g gate) drains(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(r.Header.Get(agentconfig.DrainHeader)))
		given := hex.EncodeToString(sum[:])
		if g.drain != "" && subtle.ConstantTimeCompare([]byte(given), []byte(strings.ToLower(g.drain))) == 0 {
			g.refuse(w, "drain-token", "header "+agentconfig.DrainHeader+" is not this pod's token")
			return
		}
		next(w, r)
	}
}

func (g gate) refuse(w http.ResponseWriter, reason, text string) {
	g.drop(reason)
	answer(w, http.StatusForbidden, problem{text})
}
