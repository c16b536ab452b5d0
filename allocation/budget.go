package allocation

import (
	"fmt"
	"strings"
)

// Bounds of a budget's fields.
const (
	MaxUnits            int64 = 1 << 53 // the largest whole number that every JSON reader keeps
	MaxName                   = 200
	DefaultRunsAloneFor       = 6 * Hour
	MaxRunsAloneFor           = 90 * Day
	MaxOpenTerms              = 200 // runs_alone_for may span at most so many terms
	DefaultMaxInstances int64 = 1_000_000
	MaxMaxInstances     int64 = 1_000_000_000
	DefaultReservation        = Hour
	MaxReservation            = 30 * Day
	MaxMaxEvidenceAge         = 30 * Day
	MaxWaitForShare           = 30 * Second // the longest deadline of a request
	MaxLeastRunway            = Hour
	MaxWeightSum        int64 = 1 << 31
	MaxRegionsPerBudget       = 64
	MaxKeepPercent      int64 = 50
	DefaultOnExhausted        = 429
)

// The values of Budget's and Policy's choices. The first of each is the default;
// the policies have none.
const (
	MissingLabelRefuse    = "refuse"
	MissingLabelUnchecked = "unchecked"

	AdmissionIDRequired  = "required"
	AdmissionIDGenerated = "generated"

	OnLapseSpend   = "spend"
	OnLapseRelease = "release"

	OnStaleRefuse = "refuse"
	OnStaleAdmit  = "admit"

	PolicyFixed  = "fixed"
	PolicyDemand = "demand"
	PolicyHome   = "home"
)

// Budget is a declared hard limit: so many units per period. It is plain data;
// Validate is called at every door. Fields left out have the defaults that
// WithDefaults fills in.
type Budget struct {
	// Name has 1 to 200 of letters, digits, . _ - / and {label} parts, which make it a template.
	Name string `json:"budget" yaml:"budget"`
	// Unit is what is counted, like requests or usd_micros.
	Unit string `json:"unit" yaml:"unit"`
	// Limit is in units per period, for a template per instance: 0 (refuse all) to MaxUnits. Nil is an error.
	Limit *int64 `json:"limit,omitempty" yaml:"limit,omitempty"`
	// OpeningSpent is how much of the limit was spent elsewhere before the budget was declared: in its first period, which runs
	// by then, so much counts as spent from the start. Not for templates; it is only heard when the budget is declared.
	OpeningSpent int64  `json:"opening_spent,omitempty" yaml:"opening_spent,omitempty"`
	Window       Window `json:"window" yaml:"window"`
	// Protected is how much of the limit only essential traffic may spend, 0 to the limit; for a template per instance.
	Protected int64 `json:"protected,omitempty" yaml:"protected,omitempty"`
	// Match are the labels that a request must carry for the budget to apply; none: it applies to all.
	Match map[string]string `json:"match,omitempty" yaml:"match,omitempty"`
	// InsteadOf is a budget that this one stands in for: a request that this one applies to is not charged to that one.
	InsteadOf string `json:"instead_of,omitempty" yaml:"instead_of,omitempty"`
	// Counted says whose the limit is, as CountedBy does: a reader's aid that must be right. Empty: what CountedBy says.
	Counted string `json:"counted,omitempty" yaml:"counted,omitempty"`
	// MissingLabel says what becomes of a request without a template's label: "refuse" or "unchecked".
	MissingLabel string `json:"missing_label,omitempty" yaml:"missing_label,omitempty"`
	Allocation   Policy `json:"allocation" yaml:"allocation"`
	// RunsAloneFor is how long, at least, a region that is cut off can go on. 0: 6 h.
	RunsAloneFor Duration `json:"runs_alone_for,omitempty" yaml:"runs_alone_for,omitempty"`
	// MaxInstances bounds the instances of a template in one period. 0: 1,000,000.
	MaxInstances int64 `json:"max_instances,omitempty" yaml:"max_instances,omitempty"`
	// AdmissionID is "required", or "generated" for callers that send none; a retry is then charged again.
	AdmissionID string `json:"admission_id,omitempty" yaml:"admission_id,omitempty"`
	// OnLapse says what becomes of a reservation that timed out: "spend" or "release".
	OnLapse string `json:"on_lapse,omitempty" yaml:"on_lapse,omitempty"`
	// LongestReservation bounds how long units are held. 0: 1 h; at most 30 d.
	LongestReservation Duration `json:"longest_reservation,omitempty" yaml:"longest_reservation,omitempty"`
	// OnExhausted is the HTTP status once the whole budget is used up: 402 or 429. 0: 429.
	OnExhausted int `json:"on_exhausted,omitempty" yaml:"on_exhausted,omitempty"`
	// MaxEvidenceAge is the greatest age of the coordinator's word to admit on. 0: any age.
	MaxEvidenceAge Duration `json:"max_evidence_age,omitempty" yaml:"max_evidence_age,omitempty"`
	// OnStaleEvidence is "refuse" or "admit" (within the share); only with MaxEvidenceAge.
	OnStaleEvidence string `json:"on_stale_evidence,omitempty" yaml:"on_stale_evidence,omitempty"`
	// WaitForShare is how long, within its own deadline, a request waits for a top-up when it finds the region's share spent
	// while permits may be free elsewhere. 0: not at all.
	WaitForShare Duration `json:"wait_for_share,omitempty" yaml:"wait_for_share,omitempty"`
	// Ladder is what happens, by priority, as the budget is used up; nil: nothing before it is used up.
	Ladder *Ladder `json:"ladder,omitempty" yaml:"ladder,omitempty"`
	// Synthetic says that nobody's real requests are charged to it: its tenant is one for drills, which spend it and change its
	// limit. Only with a tenant in Match.
	Synthetic bool `json:"synthetic,omitempty" yaml:"synthetic,omitempty"`
	// Enforcement is "enforce", "shadow" or "meter".
	Enforcement string `json:"enforcement,omitempty" yaml:"enforcement,omitempty"`
	// EnforceFor are requests for which it is enforced all the same; only with shadow or meter.
	EnforceFor *EnforceFor `json:"enforce_for,omitempty" yaml:"enforce_for,omitempty"`
	// EnforcementUntil ends shadow or meter by itself; from then on the budget is enforced. 0: no end.
	EnforcementUntil Instant `json:"enforcement_until,omitempty" yaml:"enforcement_until,omitempty"`
	// Thresholds are the parts of the limit, in percent and rising, that the event feed tells of when they are used up; none: 50, 80
	// and 100. Not for templates: only the sum over their instances is known.
	Thresholds []int64 `json:"thresholds,omitempty" yaml:"thresholds,omitempty"`
	// Override is a temporary raise, which Limit includes while it stands. Only `tranche override` makes one.
	Override *Override `json:"override,omitempty" yaml:"override,omitempty"`
}

// Policy says which region may spend how much. "fixed" has Weights. "demand" hands
// out what is asked for, within Min and Max. "home" puts all of it in one region and
// has exactly one of Region, HashOf and RegionFrom.
type Policy struct {
	Policy string `json:"policy" yaml:"policy"`
	// Weights are by region: 0 to MaxWeightSum, which also bounds their sum; at least one above 0.
	Weights map[string]int64 `json:"weights,omitempty" yaml:"weights,omitempty"`
	// KeepPercent of the limit stays unallocated under policy fixed, 0 to MaxKeepPercent: the share of a region that lost its
	// database, and with it what it held, comes out of it.
	KeepPercent int64 `json:"keep_percent,omitempty" yaml:"keep_percent,omitempty"`
	// Region is the home by name.
	Region string `json:"region,omitempty" yaml:"region,omitempty"`
	// HashOf is the template's label whose value picks each instance's home by hash.
	HashOf string `json:"hash_of,omitempty" yaml:"hash_of,omitempty"`
	// RegionFrom is the template's label whose value names each instance's home.
	RegionFrom string `json:"region_from,omitempty" yaml:"region_from,omitempty"`
	// Forward lets a node that is not the home forward a spend to one that is, once; only for home.
	Forward bool `json:"forward,omitempty" yaml:"forward,omitempty"`
	// Min is what a region holds at least of each period, in units, by region; only for demand.
	Min map[string]int64 `json:"min,omitempty" yaml:"min,omitempty"`
	// Max is what a region may hold at most of each period, in units, by region; only for demand.
	Max map[string]int64 `json:"max,omitempty" yaml:"max,omitempty"`
	// LeastRunway is how long, at its rate of late, a region is to go on from what it holds; only for demand. 0: 2 s.
	LeastRunway Duration `json:"least_runway,omitempty" yaml:"least_runway,omitempty"`
}

// IsTemplate says whether the name has {label} parts.
func (b Budget) IsTemplate() bool { return strings.ContainsRune(b.Name, '{') }

// TemplateLabels returns the labels of the name's {label} parts in their order;
// nil if it has none. Of a name that is not valid it returns those before the fault.
func (b Budget) TemplateLabels() []string {
	if !b.IsTemplate() {
		return nil
	}
	labels, _ := parseName(b.Name)
	return labels
}

// LimitOrZero returns the limit; one that is missing refuses all, like 0.
func (b Budget) LimitOrZero() int64 {
	if b.Limit == nil {
		return 0
	}
	return *b.Limit
}

// WithDefaults returns the budget with every default filled in. It never
// changes a field that is given, and gives no limit.
func (b Budget) WithDefaults() Budget {
	b.Window.Zone = b.Window.zoneName()
	if b.IsTemplate() {
		orDefault(&b.MissingLabel, MissingLabelRefuse)
		orDefault(&b.MaxInstances, DefaultMaxInstances)
	}
	orDefault(&b.RunsAloneFor, DefaultRunsAloneFor)
	orDefault(&b.AdmissionID, AdmissionIDRequired)
	orDefault(&b.OnLapse, OnLapseSpend)
	orDefault(&b.LongestReservation, DefaultReservation)
	orDefault(&b.OnExhausted, DefaultOnExhausted)
	orDefault(&b.Enforcement, Enforce)
	if b.MaxEvidenceAge != 0 {
		orDefault(&b.OnStaleEvidence, OnStaleRefuse)
	}
	return b
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// FieldError names a field, what is wrong with it, and what to do.
type FieldError struct {
	Field   string `json:"field"` // its path, like window.every
	Problem string `json:"problem"`
	Fix     string `json:"fix"`
}

// Error returns "field: problem; fix".
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Field, e.Problem, e.Fix) }

// Problems are all that is wrong, reported at once. As an error it is never
// empty; errors.As finds the first as a *FieldError.
type Problems []FieldError

// Error returns one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each problem as a *FieldError.
func (p Problems) Unwrap() []error {
	list := make([]error, len(p))
	for i := range p {
		list[i] = &p[i]
	}
	return list
}

func (p *Problems) add(field, problem, fix string) {
	*p = append(*p, FieldError{Field: field, Problem: problem, Fix: fix})
}

// err returns nil, not an empty list inside an interface, when nothing is wrong.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
