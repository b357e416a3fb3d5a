package engine

import "strings"

// fences reads the blocks of code of a page of Markdown, each line of which is no prose.
// It says false for a text without any.
func (s *shell) fences() bool {
	blocks := fencedBlocks(s.src)
	if len(blocks) == 0 {
		return false
	}
	all := s.src
	for _, b := range blocks {
		switch b.language {
		case "", "bash", "sh", "shell", "zsh", "console", "shell-session":
			s.src, s.pos = all[:b.to], b.from
			s.run()
		case "yaml", "yml", "json":
			if starts(all[b.from:b.to]) {
				command{shell: s}.inside(word{text: all[b.from:b.to], at: s.at(b.from), body: s.at(b.from)}, nil)
			}
		}
	}
	s.src = all
	s.uncalled()
	return true
}

type fencedBlock struct {
	language string
	from, to int
}

// fencedBlocks are the blocks between lines of three backquotes; none where those do not
// pair, or where what stands in front of the first is a command already.
func fencedBlocks(text string) []fencedBlock {
	var out []fencedBlock
	var open *fencedBlock
	for at := 0; at < len(text); {
		line, _, _ := strings.Cut(text[at:], "\n")
		next := min(at+len(line)+1, len(text))
		name, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case !fence:
		case open != nil && name == "":
			open.to = at
			out, open = append(out, *open), nil
		case open == nil && !strings.ContainsAny(name, "` $") && len(out) < maxDocuments:
			open = &fencedBlock{language: name, from: next}
		default:
			return nil
		}
		at = next
	}
	if open != nil || len(out) == 0 || starts(text[:out[0].from]) && !strings.HasPrefix(strings.TrimSpace(text), "#") {
		return nil
	}
	return out
}
