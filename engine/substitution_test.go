package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
)

func TestSubstitutions(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"text", "P=1\nC=$(cat <<EOF\n{\"a\": \"$P\", 'b': \\$x}\nEOF\n)\nvllm serve m --x \"$C\"", `vLLM|m|--x|{"a": "1", 'b': $x}`},
		{"quoted end", "P=1\nC=$(cat <<'EOF'\n{\"a\": \"$P\"}\nEOF\n)\nvllm serve m --x \"$C\"", `vLLM|m|--x|{"a": "$P"}`},
		{"in quotes", "vllm serve m --x \"$(cat <<-END\n\tit's\n\tEND\n)\" -tp 8", "vLLM|m|--x|\tit's|-tp|8"},
		{"unknown in it", "C=$(cat <<EOF\n[\"$P\"]\nEOF\n)\nvllm serve m --x \"$C\"", `vLLM|m|--x|["$P"]`},
		{"lines", "C=$(cat <<EOF\na\n\nb\nEOF\n)\nvllm serve m --x \"$C\"", "vLLM|m|--x|a\n\nb"},
		{"another program", "C=$(tac <<EOF\na\nEOF\n)\nvllm serve m", "vLLM|m"},
		{"product", "N=8\nvllm serve m -dp $((N * 2))", "vLLM|m|-dp|16"},
		{"terms", "N=8\nvllm serve m -dp $(( (${N} + $N) / 4 - -1 % 3 ))", "vLLM|m|-dp|5"},
		{"sum that ends a list", "A=(-dp $((4 * (1 + 1))))\nvllm serve m ${A[@]}", "vLLM|m|-dp|8"},
		{"not known", "vllm serve m -dp $((N * 2))", "vLLM|m|-dp|$((N * 2))"},
		{"not known in a variable", "A=$(( N * 2 ))\nvllm serve m -dp $A", "vLLM|m|-dp|$(( N * 2 ))"},
		{"by nothing", "vllm serve m -dp $((2 / 0))", "vLLM|m|-dp|$((2 / 0))"},
		{"no number", "vllm serve m -dp $((2 ** 3))", "vLLM|m|-dp|$((2 ** 3))"},
		{"too great", "N=2147483647; vllm serve m -dp $((99999999999))", "vLLM|m|-dp|$((99999999999))"},
		{"fence", "Run:\n```bash\nvllm serve m -tp 8\n```\nand `vllm serve x`", "vLLM|m|-tp|8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := engine.ParseCommands(tc.text)
			if diff := cmp.Diff([]string{tc.want}, launches(s)); diff != "" {
				t.Errorf("%s\n%s\nnotes %v", tc.text, diff, s.Notes)
			}
		})
	}
}
