package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
)

func TestBranches(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"same", "if x; then A=1; else A=1; fi; vllm serve m -tp $A", "vLLM|m|-tp|1"},
		{"apart", "if x; then A=1; else A=2; fi; vllm serve m -tp $A", "vLLM|m|-tp|$A"},
		{"one branch", "if x; then\n A=1\nfi\nvllm serve m -tp $A", "vLLM|m|-tp|$A"},
		{"its own default", "if [ -z \"$A\" ]; then A=1; fi; vllm serve m -tp $A", "vLLM|m|-tp|1"},
		{"within", "if x; then A=1; vllm serve m -tp $A; else A=2; fi", "vLLM|m|-tp|1"},
		{"elif begins anew", "A=0; if x; then A=1; elif y; then vllm serve m -tp $A; fi", "vLLM|m|-tp|0"},
		{"beginning in common", "A='-tp 8'\nif x\nthen\n  A=\"$A --a\"\nelse\n  A=\"$A --b\"\nfi\nvllm serve m $A", "vLLM|m|-tp|8|$A"},
		{"array", "A=(-tp 8)\nif x; then A+=(--enforce-eager); fi\nvllm serve m \"${A[@]}\"", "vLLM|m|-tp|8|--enforce-eager"},
		{"arrays", "if x; then A=(-tp 8); else A=(-tp 4); fi\nvllm serve m ${A[@]}", "vLLM|m|-tp|${A[@]}"},
		{"case", "case $R in\n p) A=1;;\n d) A=2\n;;\nesac\nvllm serve m -tp $A", "vLLM|m|-tp|$A"},
		{"case with a default", "case $R in p) A=3;; *) A=3;; esac; vllm serve m -tp $A", "vLLM|m|-tp|3"},
		{"loop", "for i in 1 2; do A=3; done; vllm serve m -tp $A", "vLLM|m|-tp|3"},
		{"loop changes", "A=1; while x; do A=3; done; vllm serve m -tp $A", "vLLM|m|-tp|$A"},
		{"guard", "A=1; [ -n \"$B\" ] && A=2; vllm serve m -tp $A", "vLLM|m|-tp|1"},
		{"no guard", "cd x && A=2; vllm serve m -tp $A", "vLLM|m|-tp|2"},
		{"nested", "if x; then if y; then A=1; else A=1; fi; else A=1; fi; vllm serve m -tp $A", "vLLM|m|-tp|1"},
		{"nested apart", "if x; then if y; then A=1; else A=2; fi; else A=1; fi; vllm serve m -tp $A", "vLLM|m|-tp|$A"},
		{"unclosed", "if x; then A=1; vllm serve m -tp $A", "vLLM|m|-tp|1"},
		{"deep", strings.Repeat("if x; then ", 20) + "A=1; " + strings.Repeat("fi; ", 20) + "A=4; vllm serve m -tp $A", "vLLM|m|-tp|4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := engine.ParseCommands(tc.text)
			if diff := cmp.Diff([]string{tc.want}, launches(s)); diff != "" {
				t.Errorf("%s\n%s\nnotes %v", tc.text, diff, s.Notes)
			}
		})
	}
}

func TestBranchNotes(t *testing.T) {
	serve := func(before, flags string) string { return before + "; " + moriio("") + flags }
	for _, n := range []noted{
		{serve("if x; then A=1; else A=2; fi", "-tp $A"), engine.Unread, "layout.tp", "$A is not known: it is set to one thing in one branch"},
		{serve("if x; then A=(-dcp 8); fi", "-tp 8 ${A[@]}"), engine.Unread, "layout.dcp", "A holds -dcp in one branch"},
		{serve("A=(); if x; then A+=(--enforce-eager); fi", "-tp 8 ${A[@]}"), "", "", ""},
		{serve("A=; if x; then A='-dcp 8'; fi", "-tp 8 $A"), engine.Unread, "", "$A is not known"},
	} {
		n.check(t)
	}
}
