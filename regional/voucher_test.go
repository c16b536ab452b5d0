package regional

import (
	"testing"

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
