package cli

import (
	"cmp"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// The parts of SARIF 2.1.0 that code hosts turn into annotations.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string        `json:"id"`
		ShortDescription sarifText     `json:"shortDescription"`
		FullDescription  sarifText     `json:"fullDescription"`
		Configuration    sarifSeverity `json:"defaultConfiguration"`
	}
	sarifSeverity struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
)

// Rules of SARIF's own, for what is no rule of a pool.
const (
	sarifUnread = "unreadable"
	sarifNote   = "note"
	sarifGPUs   = "gpus-available"
)

// describe documents a rule that has results.
func describe(id string) sarifRule {
	info := kvlayout.RuleInfo{ID: id, Severity: kvlayout.Warn}
	switch id {
	case sarifUnread:
		info.Severity, info.Description, info.Reason = kvlayout.Refuse, "everything that the rules depend on can be read", "nothing can be said of what can't"
	case sarifNote:
		info.Description, info.Reason = "a command line says what it seems to", "the engine reads it otherwise, or nobody can tell"
	case sarifGPUs:
		info.Description, info.Reason = "the cluster has the GPUs", "instances would wait for them"
	default:
		all := Rules()
		if i := slices.IndexFunc(all, func(r kvlayout.RuleInfo) bool { return r.ID == id }); i >= 0 {
			info = all[i]
		}
	}
	return sarifRule{
		ID: id, ShortDescription: sarifText{info.Description}, FullDescription: sarifText{info.Description + ": " + info.Reason},
		Configuration: sarifSeverity{sarifLevel(info.Severity)},
	}
}

// writeSARIF is the report for code hosts.
func (o Options) writeSARIF(r Report) error {
	s := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	s.Tool.Driver = sarifDriver{Name: "kubectl-pdpool", Version: o.Version, Rules: []sarifRule{}}
	for _, e := range r.Errors {
		s.add(sarifUnread, "error", e.Text, e.Place)
	}
	for _, v := range r.Pools {
		for _, p := range v.Problems {
			s.add(p.Rule, sarifLevel(p.Severity), v.Name+": "+p.Message+"; "+p.Reason+"; "+cmp.Or(p.FixByFlags, p.Fix), p.Place)
		}
		for _, n := range v.Notes {
			if n.Kind == engine.Unread {
				s.add(sarifUnread, "error", n.Text, n.Place)
				continue
			}
			s.add(sarifNote, "note", n.Text, n.Place)
		}
		if v.GPUs != nil && !v.GPUs.Available {
			s.add(sarifGPUs, "warning", v.Name+": "+v.GPUs.Message, v.Place)
		}
	}
	return o.json(sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{s},
	})
}

func sarifLevel(s kvlayout.Severity) string {
	if s == kvlayout.Refuse {
		return "error"
	}
	return "warning"
}

func (s *sarifRun) add(rule, level, text string, at manifest.Place) {
	index := slices.IndexFunc(s.Tool.Driver.Rules, func(r sarifRule) bool { return r.ID == rule })
	if index < 0 {
		index = len(s.Tool.Driver.Rules)
		s.Tool.Driver.Rules = append(s.Tool.Driver.Rules, describe(rule))
	}
	var l sarifLocation
	l.Physical.Artifact.URI = (&url.URL{Path: filepath.ToSlash(at.File)}).String()
	l.Physical.Region = sarifRegion{Line: cmp.Or(at.Line, 1), Column: at.Column}
	s.Results = append(s.Results, sarifResult{RuleID: rule, RuleIndex: index, Level: level, Message: sarifText{text}, Locations: []sarifLocation{l}})
}
