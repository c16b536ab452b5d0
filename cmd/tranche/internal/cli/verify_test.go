package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/books"
)

// said is what a command prints for people.
func said(do func(*App)) string {
	var out bytes.Buffer
	do(&App{out: &out, err: &out, now: func() time.Time { return time.Unix(1_000_000, 0) }})
	return out.String()
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

// A lowered limit: without what is overcommitted nobody could add the line up by hand.
func TestAccountAddsUpByHand(t *testing.T) {
	r := allocation.AccountReport{Lines: []allocation.AccountLine{{Budget: "b", Limit: 50, Overcommitted: 25, Spent: 55, Spendable: 20}}}
	text := said(func(a *App) { a.account(r, false) })
	wants(t, strings.Join(strings.Fields(text), " "), "LIMIT OVERC. SPENT RES. SPENDABLE STRAND. UNALLOC. TRANSIT", " 50 25 55 0 20 0 0 0")
}

// Ledgers that etcd could not confirm for a while add up as they were. An operator who reads "adds up" without their age
// would trust what is not known.
func TestVerifyTellsTheAge(t *testing.T) {
	age := func(d time.Duration) *int64 { ms := d.Milliseconds(); return &ms }
	e := books.Evidence{Deployment: "d", Readings: []books.Part{
		{Read: "ledgers", From: "http://c", Revision: 57, AgeMillis: age(40 * time.Millisecond)},
		{Read: "owner of a", From: "http://a", Revision: 57, AgeMillis: age(0)},
		{Read: "ledgers again", From: "http://c", Revision: 58},
	}}
	show := func() string {
		return said(func(a *App) {
			if err := a.showEvidence(e, verifyOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	text := show()
	wants(t, strings.Join(strings.Fields(text), " "), "ledgers http://c 57 40 ms ago", "owner of a http://a 57 when asked", "ledgers again http://c 58 not told", "the account adds up: 0 lines")
	if strings.Contains(text, "warning") {
		t.Errorf("fresh ledgers are warned of:\n%s", text)
	}
	e.Readings[2].AgeMillis = age(20 * time.Second)
	wants(t, show(), "warning: ledgers again: the coordinator at http://c last read etcd 20 s ago", "the account adds up, by ledgers that are old: ")
}

// Where no owner was read nothing was compared with anything, and what names no deployment may be any server's answer.
func TestVerifyOfNothingProvesNothing(t *testing.T) {
	for want, e := range map[string]books.Evidence{
		"":                   {},
		"nothing is proven:": {Deployment: "d", NotRead: map[string]string{"a": "away"}},
	} {
		text := said(func(a *App) {
			if err := a.showEvidence(e, verifyOptions{}); err == nil {
				t.Error("it ends with status 0")
			}
		})
		if wants(t, text, want); strings.Contains(text, "adds up") {
			t.Errorf("it adds up:\n%s", text)
		}
	}
}
