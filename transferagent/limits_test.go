package transferagent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/zmtp"
)

// literals are the strings of all that an agent is made of.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, dir := range []string{".", "../zmtp", "../moriio"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil {
						all[s] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// What the page of limits says is counted is counted under that name, and what ends a
// connection or refuses a message is on the page.
func TestLimitsPageNamesTheReasons(t *testing.T) {
	b, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	known := literals(t)
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(?:drop [A-Za-z]+|refuse|fail): ([a-z-]+)`").FindAllStringSubmatch(page, -1) {
		named[m[1]] = true
		if !known[m[1]] {
			t.Errorf("nothing is counted as %q", m[1])
		}
	}
	for _, reason := range []string{
		zmtp.Cut, zmtp.NotZMTP, zmtp.OldVersion, zmtp.Mechanism, zmtp.SocketType, zmtp.BadHandshake, zmtp.PeerError, zmtp.BadFrame,
		zmtp.BadCommand, zmtp.FrameTooLong, zmtp.TooManyFrames, zmtp.MessageTooLong, zmtp.BuffersFull, zmtp.HandshakeTimeout, zmtp.Idle,
		zmtp.SlowSender, zmtp.SlowReader, zmtp.TooMany, zmtp.TooManyFromHost, zmtp.TooManyOfMember, zmtp.Unproven, zmtp.MadeRoom, zmtp.AcceptFailed,
		moriio.Truncated, moriio.TooLong, moriio.BadField, moriio.UnknownType, moriio.Malformed,
		ruleHello, ruleDuplicate, ruleFaults, ruleMemory, ruleRegions, ruleOrder, ruleMessage, ruleDraining, reasonUnproven, reasonSlow,
	} {
		if !named[reason] {
			t.Errorf("%q is not on the page", reason)
		}
	}
}
