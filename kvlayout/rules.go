package kvlayout

// Scope says what a rule looks at.
type Scope string

// SideScope: one role alone. PairScope: both.
const (
	SideScope Scope = "Side"
	PairScope Scope = "Pair"
)

// RuleInfo documents a rule.
type RuleInfo struct {
	ID          string   `json:"id"`
	Scope       Scope    `json:"scope"`
	Severity    Severity `json:"severity"` // the strongest it reports
	Description string   `json:"description"`
	Reason      string   `json:"reason"`
}

// Rules is the catalog, in the order in which rules are checked.
func Rules() []RuleInfo {
	return nil
}
