package scale

import "testing"

// What etcd holds of minute budgets must not grow with time: a ledger, a record or a statement that stays for ever fills it
// within months, long after every other test has ended.
func TestMonthIsSteady(t *testing.T) {
	const budgets, termsADay = 10, 16 // a term is a quarter of six hours
	m, err := MeasureMonth(t.Context(), MonthOptions{Budgets: budgets, Regions: 2, Days: 3})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Days) != 3 || m.LedgerWrites != 1 {
		t.Fatalf("%d days, %.3f ledger writes for each term; one opens it", len(m.Days), m.LedgerWrites)
	}
	before, last := m.Days[1], m.Days[2]
	within := func(what string, got, want int) {
		if got < want-budgets || got > want+budgets {
			t.Errorf("%s: %d, want %d, give or take one for each budget", what, got, want)
		}
	}
	for kind, held := range last.Kinds { // a record may leave a minute sooner or later than the day is over
		within(kind, held.Documents, before.Kinds[kind].Documents)
	}
	if was, is := before.Kinds["statements"].Bytes, last.Kinds["statements"].Bytes; is > was+was/10 {
		t.Errorf("statements took %d bytes after two days, and %d after three", was, is)
	}
	within("terms that were opened in a day", m.Terms, budgets*termsADay)
	within("records that moved to the archive in a day", m.Records, budgets*termsADay)
	within("records that etcd holds", last.Kinds["closings"].Documents, budgets*termsADay)
	within("ledgers that etcd holds", last.Kinds["ledgers"].Documents, budgets*5)
	if m.Days[0].Archive != 0 || before.Archive == 0 || last.Archive <= before.Archive {
		t.Errorf("the archive has %d, %d and %d bytes after the three days", m.Days[0].Archive, before.Archive, last.Archive)
	}
}

func TestMonthsThatAreRefused(t *testing.T) {
	for _, o := range []MonthOptions{
		{Budgets: 9, Regions: 2, Days: 3},
		{Budgets: 20_001, Regions: 2, Days: 3},
		{Budgets: 10, Regions: 2, Days: 2},
		{Budgets: 10, Regions: 2, Days: 63},
		{Budgets: 10, Regions: 1, Days: 3},
	} {
		if _, err := MeasureMonth(t.Context(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
