package regional

import (
	"testing"
	"time"

	"tranche/allocation"
)

func saw(lineage string, marks ...WriterMark) Look {
	return Look{Lineage: lineage, Home: allocation.Home{System: "s"}, Marks: marks}
}

func left(writer string, count int64) WriterMark {
	return WriterMark{Mark: allocation.Mark{Writer: writer, Count: count, Value: "v"}}
}

func (m WriterMark) by(vouched, ended bool) WriterMark {
	m.Vouched, m.Ended = vouched, ended
	return m
}

// Each row is a way in which a node that nobody vouches for could let itself in, or be kept out for ever.
func TestConsider(t *testing.T) {
	home := allocation.Home{System: "s"}
	for name, c := range map[string]struct {
		remembers bool // it was vouched for in the lineage before
		home      allocation.Home
		looks     []Look // of its only slot, one after the other
		want      bool
	}{
		"alone, without memory":                    {false, home, []Look{saw("b"), saw("b")}, false},
		"alone, with memory":                       {true, home, []Look{saw("b")}, true},
		"with memory, in another home":             {true, allocation.Home{System: "other"}, []Look{saw("b"), saw("b")}, false},
		"the other has not gone on":                {true, home, []Look{saw("b", left("x", 3)), saw("b", left("x", 3))}, false},
		"the other went on":                        {true, home, []Look{saw("b", left("x", 3)), saw("b", left("x", 4))}, true},
		"one of two went on":                       {true, home, []Look{saw("b", left("x", 3), left("y", 1)), saw("b", left("x", 4), left("y", 1))}, false},
		"the other ended before":                   {true, home, []Look{saw("b", left("x", 3).by(false, true)), saw("b", left("x", 3).by(false, true))}, true},
		"the other went on, in a later lineage":    {true, home, []Look{saw("b", left("x", 3)), saw("c", left("x", 4))}, false},
		"without memory, the other went on":        {false, home, []Look{saw("b", left("x", 3)), saw("b", left("x", 4))}, false},
		"a vouched one commits":                    {false, home, []Look{saw("b", left("x", 3).by(true, false)), saw("b", left("x", 4).by(true, false))}, true},
		"a vouched one committed before we looked": {false, home, []Look{saw("b", left("x", 3).by(true, false)), saw("b", left("x", 3).by(true, false))}, false},
		"a vouched one ended before we looked":     {false, home, []Look{saw("b", left("x", 3).by(true, true)), saw("b", left("x", 3).by(true, true))}, false},
		"a vouched one appears":                    {false, home, []Look{saw("b"), saw("b", left("x", 2).by(true, false))}, true},
		"one that is not vouched for any more":     {false, home, []Look{saw("b", left("x", 3).by(true, false)), saw("b", left("x", 4))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &voucher{}
			if c.remembers {
				v.give("a", c.home)
			}
			got := false
			for _, l := range c.looks {
				l.Marks = append(l.Marks, left("own", 7))
				v.see(l.Lineage)
				got = v.consider(0, 1, []string{"own"}, l)
			}
			if got != c.want {
				t.Errorf("vouched: %v, want %v", got, c.want)
			}
		})
	}
}

func (m WriterMark) called(name string) WriterMark {
	m.Name = name
	return m
}

// Each row is a way in which a node could rest on a coordinator that was not told of everything yet, or wait for somebody
// who is gone.
func TestTheCoordinatorsWord(t *testing.T) {
	other := left("x", 3).called("n2/lane-0")
	for name, c := range map[string]struct {
		looks []Look
		after time.Duration // its first word, the last one
		want  bool
	}{
		"alone":                                   {[]Look{saw("b")}, 0, true},
		"the other has not gone on":               {[]Look{saw("b", other), saw("b", other)}, othersWithin - 1, false},
		"the other was waited for":                {[]Look{saw("b", other), saw("b", other)}, othersWithin, true},
		"the other went on":                       {[]Look{saw("b", other), saw("b", left("x", 4).called("n2/lane-0"))}, 0, true},
		"one of its slots went on":                {[]Look{saw("b", other, left("y", 1).called("n2/lane-1")), saw("b", left("x", 4).called("n2/lane-0"), left("y", 1).called("n2/lane-1"))}, 0, false},
		"the other ended":                         {[]Look{saw("b", other.by(false, true))}, 0, true},
		"another process has its name":            {[]Look{saw("b", other), saw("b", other, left("z", 1).called("n2/lane-0"))}, 0, true},
		"it has the name of one of ours":          {[]Look{saw("b", left("x", 3).called("n1/lane-0"))}, 0, true},
		"the other went on, in a lineage between": {[]Look{saw("b", other), saw("c", left("x", 4).called("n2/lane-0"))}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &voucher{}
			for _, l := range c.looks {
				l.Marks = append(l.Marks, left("own", 7).called("n1/lane-0"))
				v.see(l.Lineage)
				if v.consider(0, 1, []string{"own"}, l) {
					t.Fatal("nobody vouches, and this is no memory")
				}
			}
			last := c.looks[len(c.looks)-1]
			got := v.told(last.Lineage, time.Time{}) || c.after > 0 && v.told(last.Lineage, time.Time{}.Add(c.after))
			if !v.waiting() || got != c.want {
				t.Errorf("vouched: %v, want %v", got, c.want)
			}
			if v.give(last.Lineage, allocation.Home{}); v.waiting() {
				t.Error("it waits although it is vouched for")
			}
		})
	}
}

// Without this the word of the coordinator on a database that has gone back since would count.
func TestTheCoordinatorsWordIsForOneLineage(t *testing.T) {
	v := &voucher{}
	v.see("a")
	v.consider(0, 1, []string{"own"}, saw("a", left("own", 7).called("n1/lane-0"), left("x", 1).called("n2/lane-0")))
	if v.told("a", time.Time{}) || !v.waiting() {
		t.Fatal("nothing is waited for")
	}
	if v.unsaid(); v.told("a", time.Time{}.Add(othersWithin)) {
		t.Fatal("the coordinator refused in between, and the time before that counts")
	}
	v.see("b")
	if l := saw("b", left("own", 7).called("n1/lane-0")); v.consider(0, 1, []string{"own"}, l) || v.waiting() {
		t.Fatal("it was said of another lineage")
	}
}

// Without this the process that alone knows of a loss would be let in again before it is recorded.
func TestNoVoucherBeforeTheLossIsRecorded(t *testing.T) {
	v := &voucher{}
	v.see("a")
	v.give("a", allocation.Home{})
	if !v.holds("a") || v.holds("b") || v.holds("") {
		t.Fatal("a voucher is for its lineage")
	}
	v.lose()
	if v.give("a", allocation.Home{}); v.holds("a") || v.standing() {
		t.Fatal("vouched for while a loss is not recorded")
	}
	v.recorded()
	if v.holds("a") {
		t.Fatal("the voucher of before the loss counts again")
	}
	if v.give("a", allocation.Home{}); !v.holds("a") {
		t.Fatal("never again")
	}
}
