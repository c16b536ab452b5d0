package walk

// Rule names one rule of the protocol, for a walk that is to go on without it.
//
// The seam is the wiring: allocation has no switch. Every rule is one call of one pure function, with plain values in and
// out, and a walk whose rule is off wires those same functions as code that forgot the rule would: it leaves the call out,
// or hands it what such code would hand it. Production pays nothing, and what is walked stays the real code.
type Rule string

// The rules, each with what its absence does.
const (
	NodeChecksMark       Rule = "node checks its mark"                         // off: a node writes on into a database that went back
	CoordinatorChecks    Rule = "coordinator checks its mark"                  // off: a running coordinator writes on into an etcd that went back
	StatedMarks          Rule = "stated marks are compared"                    // off: the coordinator never looks at an owner's marks
	NewIncarnation       Rule = "lost history starts a new incarnation"        // off: the owner goes on as it is
	HoldsNothing         Rule = "a new incarnation holds nothing"              // off: it keeps its shares
	NoSpeakingFor        Rule = "a new incarnation does not speak for the old" // off: what the replaced one held is taken as stated
	FormerIgnored        Rule = "a former incarnation changes nothing"         // off: its statements count for it
	HomeRecorded         Rule = "one home"                                     // off: a second database may act as the incarnation
	NodesAreVouchedFor   Rule = "a node without memory waits"                  // off: it admits at once
	BrokenConnections    Rule = "a node waits after its connection broke"      // off: its own mark is enough
	ColdIsFrozen         Rule = "a coordinator without memory waits"           // off: it trusts etcd
	ColdBeginsHistory    Rule = "a cold start begins a new history"            // off: it waits for all regions under the old one
	SameHistoryCounts    Rule = "statements count under their history only"    // off: one of another history reconciles
	OwnerHeedsHistory    Rule = "grants count under their history only"        // off: an owner takes a grant of an older history
	NoGrantWhileFrozen   Rule = "no grant while frozen"                        // off: counts and grants go on
	NoOpenWhileFrozen    Rule = "no term is opened while frozen"               // off: it is
	AllTermsFrozen       Rule = "all terms that may be open are frozen"        // off: only the running period is
	AllRegionsState      Rule = "all regions state before it thaws"            // off: the first one is enough
	StampsCompared       Rule = "stamps are compared"                          // off: the ledger takes any stamp as its own
	LedgersStamp         Rule = "answers carry the ledger's stamp"             // off: the owner keeps the stamp that it stated
	ReconcileByMaximum   Rule = "reconcile by maximum"                         // off: the restored ledger's counters stand
	ReturnsAreDurable    Rule = "a return is durable before it is stated"      // off: it is stated, and the commit is lost
	NoRegrantOnAbsence   Rule = "absence is no proof"                          // off: what a silent region holds is taken back
	NoTaking             Rule = "a lower target takes nothing"                 // off: the ledger takes from the giver at once
	GenerationsRise      Rule = "an older generation changes nothing"          // off: the latest message overwrites the share
	StatementsOnlyRaise  Rule = "statements only raise"                        // off: the last statement overwrites the ledger
	EndedBeforeSeal      Rule = "an incarnation is ended before it is sealed"  // off: the coordinator hears of a seal when it is shown
	SealLocksShares      Rule = "a seal locks the share row"                   // off: only the usage rows that exist are sealed
	SealFromHome         Rule = "a seal counts from the home only"             // off: it may come from a copy
	SealShowsMarks       Rule = "a seal shows all marks"                       // off: it may come from a database that lost commits
	SealLeavesReserved   Rule = "a seal leaves what is reserved"               // off: it counts that as returned too
	SealedTakesNoGrant   Rule = "a sealed share takes no grant"                // off: it does
	AnnouncedBeforeGrant Rule = "a region is announced before it is granted"   // off: others need not know that it exists
)

// Rules lists all of them.
func Rules() []Rule {
	return []Rule{
		NodeChecksMark, CoordinatorChecks, StatedMarks, NewIncarnation, HoldsNothing, NoSpeakingFor, FormerIgnored, HomeRecorded,
		NodesAreVouchedFor, BrokenConnections, ColdIsFrozen, ColdBeginsHistory, SameHistoryCounts, OwnerHeedsHistory, NoGrantWhileFrozen,
		NoOpenWhileFrozen, AllTermsFrozen, AllRegionsState, StampsCompared, LedgersStamp, ReconcileByMaximum, ReturnsAreDurable,
		NoRegrantOnAbsence, NoTaking, GenerationsRise, StatementsOnlyRaise, EndedBeforeSeal, SealLocksShares, SealFromHome, SealShowsMarks,
		SealLeavesReserved, SealedTakesNoGrant, AnnouncedBeforeGrant,
	}
}
