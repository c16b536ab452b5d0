package walk

// Case is a world, and what the walk of it must find.
type Case struct {
	Config
	Violated bool   // it must find a violation
	Why      string // it does
}

// The worlds. By symmetry it is a that is restored, copied and sealed.
var (
	plain    = Config{Name: "plain", Limit: 2, Moves: 2, Incarnations: 1, Histories: 1}
	reserve  = Config{Name: "reservations", Limit: 1, Moves: 1, Reserve: 2, Incarnations: 1, Histories: 1}
	late     = Config{Name: "late messages", Limit: 1, Moves: 2, Late: true, Whole: true, Incarnations: 1, Histories: 1}
	owner    = Config{Name: "owner restored", Limit: 2, Moves: 1, Writes: 4, OwnerRestores: 1, Whole: true, Incarnations: 2, Histories: 1}
	restart  = Config{Name: "owner restored, node restarted", Limit: 1, Writes: 4, OwnerRestores: 1, Restarts: 1, Incarnations: 2, Histories: 1}
	twoNodes = Config{Name: "owner restored, two nodes", Limit: 1, Writes: 4, OwnerRestores: 1, Told: true, SecondNode: true, Whole: true, Incarnations: 2, Histories: 1}
	etcd     = Config{Name: "etcd restored", Demand: true, Limit: 1, Moves: 2, EtcdRestores: 1, Incarnations: 1, Histories: 2}
	etcdLate = Config{Name: "etcd restored, late messages", Demand: true, Limit: 1, Moves: 2, EtcdRestores: 1, Late: true, Whole: true, Incarnations: 1, Histories: 2}
	cold     = Config{Name: "etcd restored, cold", Demand: true, Limit: 1, Moves: 2, EtcdRestores: 1, Cold: true, Incarnations: 1, Histories: 2}
	coldLate = Config{Name: "etcd restored, cold, late messages", Demand: true, Limit: 1, Moves: 2, EtcdRestores: 1, Cold: true, Late: true, Whole: true, Incarnations: 1, Histories: 2}
	moves    = Config{Name: "etcd restored, returns", Limit: 1, Moves: 2, EtcdRestores: 1, Whole: true, Incarnations: 1, Histories: 2}
	ahead    = Config{Name: "etcd restored, term ahead", Demand: true, Limit: 1, Moves: 2, Ahead: true, EtcdRestores: 1, Whole: true, Incarnations: 1, Histories: 2}
	both     = Config{Name: "both restored", Demand: true, Gives: []string{"a", "b"}, Limit: 1, Moves: 2, Writes: 4, OwnerRestores: 1, EtcdRestores: 1, Whole: true, Incarnations: 2, Histories: 2}
	copyOf   = Config{Name: "copy in another home", Limit: 1, Moves: 1, Writes: 3, Copy: true, Incarnations: 2, Histories: 1}
	atHome   = Config{Name: "copy in the same home", Limit: 1, Moves: 1, Writes: 3, Copy: true, CopyAtHome: true, Whole: true, Incarnations: 2, Histories: 1}
	copyBack = Config{Name: "copy, owner restored", Demand: true, Gives: []string{"a", "b"}, Limit: 1, Moves: 2, Writes: 4, Copy: true, CopyAtHome: true, OwnerRestores: 1, Whole: true, Incarnations: 2, Histories: 1}
	seal     = Config{Name: "seal", Limit: 2, Moves: 1, Reserve: 1, Seal: true, Whole: true, Incarnations: 2, Histories: 1}
	sealLate = Config{Name: "seal, late messages", Limit: 2, Moves: 1, Late: true, Seal: true, Whole: true, Incarnations: 1, Histories: 1}
	sealCopy = Config{Name: "seal, copy in another home", Limit: 1, Writes: 3, Seal: true, Copy: true, Whole: true, Incarnations: 2, Histories: 1}
	sealBack = Config{Name: "seal, owner restored", Limit: 1, Writes: 3, Seal: true, OwnerRestores: 1, Told: true, Whole: true, Incarnations: 2, Histories: 1}
	sealEtcd = Config{Name: "seal, etcd restored", Limit: 1, Seal: true, EtcdRestores: 1, Whole: true, Incarnations: 2, Histories: 2}
	join     = Config{Name: "region joins, etcd restored", Demand: true, Limit: 1, Moves: 2, Join: true, EtcdRestores: 1, Whole: true, Incarnations: 1, Histories: 2}
)

// Worlds are small enough for a test: every interleaving, with all rules on. None may be violated. Those that Models walks
// are left out.
func Worlds() []Case {
	var out []Case
	for _, c := range []Config{
		reserve, late, restart, twoNodes, cold, moves, ahead, copyOf, atHome, seal, sealLate, sealCopy, sealBack, sealEtcd, join,
	} {
		out = append(out, Case{Config: c})
	}
	return out
}

// Larger are the same worlds with wider bounds, for minutes and hours. None may be violated.
func Larger() []Case {
	fine := func(c Config) Config { c.Whole = false; return c }
	two := func(c Config) Config { c.Limit = 2; return c }
	again := fine(two(both))
	again.Name, again.Histories, again.Writes, again.Gives = "both restored, limit 2", 3, 5, nil
	anybody := both
	anybody.Name, anybody.Gives = "both restored, anybody gets", nil
	var out []Case
	for _, c := range []Config{
		etcdLate, coldLate, anybody, copyBack, fine(owner), fine(late), fine(moves), fine(ahead), fine(seal), fine(join),
		two(fine(etcd)), two(fine(cold)), fine(etcdLate), fine(coldLate), again,
	} {
		out = append(out, Case{Config: c})
	}
	return out
}

// Models are the configurations of the TLA+ models that this walk replaces, by their names, with what they found.
func Models() []Case {
	forgetful := owner
	forgetful.Forgetful = true
	named := func(name string, violated bool, why string, c Config) Case {
		c.Name = name
		return Case{c, violated, why}
	}
	return []Case{
		named("plain", false, "", plain),
		named("owner", false, "", owner),
		named("owner-noinc", true, "an owner that goes on after it lost history spends twice", owner.Without(NewIncarnation)),
		named("owner-nomem", true, "nobody remembers what was lost: neither a node, nor the coordinator, which was not told", forgetful),
		named("ledger", false, "", etcd),
		named("ledger-cold", true, "the first region to call is not the one that knows better", cold.Without(ColdIsFrozen)),
		named("ledger-cold-confirm", false, "", cold.Without(ColdBeginsHistory)),
		named("ledger-cold-confirm-nostamp", true, "all call, and nothing tells that one knows another line", cold.Without(ColdBeginsHistory, StampsCompared)),
		named("both", false, "", both),
		named("lateans", true, "a statement from before the restore thaws the ledger", etcdLate.Without(SameHistoryCounts)),
		named("lateans-echo", false, "", etcdLate),
	}
}

// Residuals are what no rule catches, because every memory of what was lost is lost too. The runbook says so; the walk shows
// how little it takes.
func Residuals() []Case {
	untold := func(c Config, name string) Config {
		c.Name, c.Told = name, false
		return c
	}
	forgetful := owner
	soon := atHome
	soon.Name, soon.CopySoon = "copy in the same home, started before the original states again", true
	forgetful.Name, forgetful.Forgetful = "owner restored, its nodes' memories gone, before it stated", true
	return []Case{
		{forgetful, true, "what was spent since the last statement is sold again"},
		{soon, true, "the copy holds every mark that was stated, and both act as the incarnation"},
		{untold(twoNodes, "owner restored, before one node of two stated"), true, "the other node is vouched for before the first one notices"},
		{untold(sealBack, "owner restored before it stated, then sealed"), true, "the seal counts what was spent as returned"},
	}
}

// Mutants switch off one rule each, in a world where that must be seen. Two rules are a second line behind the new
// history that a cold start begins: they are switched off in a walk without that.
func Mutants() []Case {
	var out []Case
	for _, m := range []struct {
		rule Rule
		in   Config
	}{
		{NodeChecksMark, owner},
		{CoordinatorChecks, etcd},
		{StatedMarks, restart},
		{NewIncarnation, owner},
		{HoldsNothing, owner},
		{NoSpeakingFor, both},
		{FormerIgnored, copyBack},
		{HomeRecorded, copyOf},
		{NodesAreVouchedFor, restart},
		{BrokenConnections, twoNodes},
		{ColdIsFrozen, cold},
		{ColdBeginsHistory, coldLate},
		{SameHistoryCounts, etcdLate},
		{OwnerHeedsHistory, etcdLate},
		{NoGrantWhileFrozen, etcd},
		{NoOpenWhileFrozen, ahead},
		{AllTermsFrozen, ahead},
		{AllRegionsState, etcd},
		{StampsCompared, cold.Without(ColdBeginsHistory)},
		{LedgersStamp, cold.Without(ColdBeginsHistory)},
		{ReconcileByMaximum, etcd},
		{ReturnsAreDurable, plain},
		{NoRegrantOnAbsence, plain},
		{NoTaking, plain},
		{GenerationsRise, late},
		{StatementsOnlyRaise, late},
		{EndedBeforeSeal, sealBack},
		{SealLocksShares, seal},
		{SealFromHome, sealCopy},
		{SealShowsMarks, sealBack},
		{SealLeavesReserved, seal},
		{SealedTakesNoGrant, sealLate},
		{AnnouncedBeforeGrant, join},
	} {
		out = append(out, Case{Config: m.in.Without(m.rule), Violated: true, Why: string(m.rule)})
	}
	return out
}

// Run walks the cases one after the other and hands over each result. It says how many found what they must not, or did
// not find what they must; a walk that was stopped before its end counts as neither.
func Run(cases []Case, progress Progress, done func(Case, Result)) (wrong int) {
	for _, c := range cases {
		r := Walk(c.Config, progress)
		if (r.Violation != "") != c.Violated && (r.Complete || r.Violation != "") {
			wrong++
		}
		done(c, r)
	}
	return wrong
}
