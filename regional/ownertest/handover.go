package ownertest

import (
	"tranche/allocation"
	"tranche/regional"
)

// An owner that commits anything after it was stopped has more than the copy that takes over; one that resumes although it
// was handed over spends what its copy spends as well.
func testHandOver(o *owner) {
	step := func(step regional.HandoverStep, asked regional.Handover, recorded allocation.Home) (regional.Handover, error) {
		return o.Other.HandOver(o.Context(), step, asked, recorded)
	}
	a, home := o.key("a", 0), o.load().Home
	if _, err := step(regional.HandoverStop, regional.Handover{ID: "h"}, home); err == nil {
		o.Fatal("an owner without an incarnation is handed over")
	}
	o.joined(10, "a")
	o.mustCharge(allocation.Spend, "one", 1, a)
	elsewhere := home
	elsewhere.Timeline += 7
	_, err := step(regional.HandoverStop, regional.Handover{ID: "h"}, elsewhere)
	o.mustBe(err, allocation.ErrContradicted)
	stopped, err := step(regional.HandoverStop, regional.Handover{ID: "h"}, home)
	if o.must(err); stopped != (regional.Handover{ID: "h", From: home}) {
		o.Fatalf("%+v", stopped)
	}
	if again, err := step(regional.HandoverStop, regional.Handover{ID: "other"}, home); err != nil || again != stopped {
		o.Fatalf("%+v, %v", again, err)
	}
	o.commitsNothing(a)

	_, err = step(regional.HandoverResume, regional.Handover{ID: "other"}, home)
	o.mustBe(err, allocation.ErrContradicted)
	_, err = step(regional.HandoverResume, regional.Handover{ID: "h"}, elsewhere)
	o.mustBe(err, allocation.ErrContradicted)
	for range 2 {
		if went, err := step(regional.HandoverResume, regional.Handover{ID: "h"}, home); err != nil || went.ID != "" {
			o.Fatalf("%+v, %v", went, err)
		}
	}
	o.mustCharge(allocation.Spend, "two", 1, a)
	if l := o.load(); l.Stopped != "" || l.Handover.ID != "" {
		o.Fatalf("%+v", l)
	}

	_, err = step(regional.HandoverHand, regional.Handover{ID: "h", To: elsewhere}, home)
	o.mustBe(err, allocation.ErrContradicted) // it was not stopped
	_, err = step(regional.HandoverStop, regional.Handover{ID: "i"}, home)
	o.must(err)
	_, err = step(regional.HandoverHand, regional.Handover{ID: "i", To: home}, home)
	o.mustBe(err, allocation.ErrContradicted)
	another := elsewhere
	another.Timeline++
	for _, to := range []allocation.Home{elsewhere, elsewhere, another} {
		if h, err := step(regional.HandoverHand, regional.Handover{ID: "i", To: to}, home); err != nil || h != (regional.Handover{ID: "i", From: home, To: to}) {
			o.Fatalf("%+v, %v", h, err)
		}
	}
	_, err = step(regional.HandoverResume, regional.Handover{ID: "i"}, home)
	o.mustBe(err, regional.ErrHandedOver)
	o.commitsNothing(a)
	if spent := o.spent(a); spent != 2 {
		o.Fatalf("%d are spent", spent)
	}
}

// commitsNothing tries all that writes.
func (o *owner) commitsNothing(a allocation.UsageKey) {
	o.Helper()
	if l := o.load(); l.Stopped != allocation.Starting || l.Detail == "" || l.Handover.ID == "" {
		o.Fatalf("%+v", l)
	}
	mark := o.w.Mark()
	tries := map[string]func() error{
		"a charge":        func() error { _, err := o.charge(o.w, allocation.Spend, "late", 1, a); return err },
		"a statement":     func() error { _, err := o.Owner.Statements(o.Context(), o.w, nil); return err },
		"what is held":    func() error { _, _, err := o.Owner.StateHeld(o.Context(), o.w, 0); return err },
		"a look":          func() error { _, err := o.Owner.Look(o.Context(), o.w); return err },
		"a lifted stop":   func() error { return o.Owner.Lift(o.Context(), o.w, allocation.Starting) },
		"a new writer":    func() error { _, err := o.Owner.NewWriter(o.Context(), "late"); return err },
		"an ended writer": func() error { return o.w.End(o.Context()) },
		"a seal":          func() error { _, err := o.Owner.Seal(o.Context(), ""); return err },
		"an answer": func() error {
			more := o.answer()
			more.Shares = []allocation.ShareGrant{o.grant("a", 9, 99, 99)}
			return o.Owner.Apply(o.Context(), o.w, more, 1)
		},
		"a refusal": func() error {
			stop := o.answer()
			stop.Refusal, stop.Incarnation = "history_lost", "life-2"
			return o.Owner.Apply(o.Context(), o.w, stop, 1)
		},
		"a new life": func() error {
			answer := o.answer()
			answer.Incarnation = "life-2"
			_, err := o.Owner.StartOver(o.Context(), o.lostCall(), answer)
			return err
		},
		"a mark kept": func() error { _, err := o.Owner.ResumeWriter(mark).Resolve(o.Context()); return err },
	}
	for what, try := range tries {
		if err := try(); err == nil {
			o.Fatalf("%s is committed", what)
		} else {
			o.mustBe(err, regional.ErrHandedOver)
		}
	}
	if l := o.load(); l.Lost || o.w.Mark() != mark || o.share("a").Generation.Number != 1 {
		o.Fatalf("%+v", l)
	}
}

// A transaction that began before the stop must end before it is said to stand: with its commit, or never.
func testHandOverWaits(o *owner) {
	o.joined(10, "a")
	a, home := o.key("a", 0), o.load().Home
	b := o.begin(o.w, o.want("running", a))
	stopped := background(func() error {
		_, err := o.Other.HandOver(o.Context(), regional.HandoverStop, regional.Handover{ID: "h"}, home)
		return err
	})
	o.othersGo()
	select {
	case err := <-stopped:
		o.Fatalf("stopped while a batch ran: %v", err)
	default:
	}
	writes, _ := admission(b.Seen(), allocation.Spend, "running", 1, a)
	o.must(b.Commit(o.Context(), writes))
	o.must(receive(o, stopped))
	if l := o.load(); o.spent(a) != 1 || l.Handover.ID != "h" {
		o.Fatalf("%+v", l)
	}
}
