package ownertest

import (
	"fmt"
	"reflect"

	"tranche/allocation"
)

func document(name string, version, number int64) allocation.Document {
	return allocation.Document{
		Kind: "note", Name: name, Version: version, Number: number, Made: allocation.History{Number: 1, Stamp: "h1"},
		Body: []byte(fmt.Sprintf(`{"says":"%s %d"}`, name, version)),
	}
}

func (o *owner) tell(through int64, documents ...allocation.Document) {
	o.Helper()
	answer := o.answer()
	answer.Documents, answer.DocumentsThrough = documents, through
	o.apply(answer)
}

func (o *owner) documents(after int64) (byName map[string]allocation.Document, changes int64) {
	o.Helper()
	l, err := o.Other.Load(o.Context(), after)
	o.must(err)
	byName = map[string]allocation.Document{}
	for _, d := range l.Documents {
		byName[d.Name] = d
	}
	return byName, l.Changes
}

// A node that misses a document lets through what was ended; one that takes an older one brings it back.
func testDocuments(o *owner) {
	o.joined(10, "a")
	ended := document("ended", 1, 5)
	ended.Final = true
	o.tell(7, document("kept", 1, 4), document("kept", 2, 6), ended, document("other", 1, 7))
	all, changes := o.documents(0)
	if len(all) != 3 || !reflect.DeepEqual(all["kept"], document("kept", 2, 6)) || !all["ended"].Final {
		o.Fatalf("%+v", all)
	}
	l, err := o.Owner.Load(o.Context(), 0)
	o.must(err)
	if l.DocumentsThrough != 7 || l.Config != 0 {
		o.Fatalf("%+v", l)
	}
	// What is older, and what would undo an end, changes nothing, whatever its number.
	o.tell(3, document("kept", 1, 99), document("ended", 9, 99), document("other", 1, 7))
	if same, now := o.documents(changes); len(same) != 0 || now != changes {
		o.Fatalf("%+v at %d", same, now)
	}
	finish := document("kept", 1, 3)
	finish.Final = true
	o.tell(8, finish, document("other", 1, 8))
	want := o.want("x")
	want.Changes = changes
	b := o.begin(o.w, want)
	b.Abandon()
	if s := b.Seen(); len(s.Documents) != 2 || s.DocumentsThrough != 8 || s.Behind || s.Changes <= changes {
		o.Fatalf("%+v", s)
	}
	if peeked := o.peek(want); len(peeked.Documents) != 2 {
		o.Fatalf("%+v", peeked)
	}
	var many []allocation.Document
	for i := range 101 {
		many = append(many, document(fmt.Sprint("many-", i), 1, 9))
	}
	o.tell(9, many...)
	if s := o.peek(want); !s.Behind || len(s.Documents) != 0 {
		o.Fatalf("%d documents, behind %v", len(s.Documents), s.Behind)
	}
	broken := document("broken", 1, 10)
	broken.Body = []byte("{")
	answer := o.answer()
	answer.Documents = []allocation.Document{broken}
	if o.Owner.Apply(o.Context(), o.w, answer, 1) == nil {
		o.Fatal("a body that is no JSON was stored")
	}
}

// What the coordinator has not told under its present history must be stated, or a restored etcd forgets it for ever.
func testUntold(o *owner) {
	o.joined(10, "a")
	stated := func() (names []string) {
		o.Helper()
		call, err := o.Owner.Statements(o.Context(), o.w, nil)
		o.must(err)
		for _, d := range call.Documents {
			names = append(names, d.Name)
		}
		return names
	}
	is := func(want ...string) {
		o.Helper()
		if got := stated(); !reflect.DeepEqual(got, want) {
			o.Fatalf("%q are stated, not %q", got, want)
		}
	}
	o.tell(5, document("told", 2, 5), document("another", 1, 5))
	is()
	here := document("here", 1, 0)
	_, before := o.documents(0)
	if ok, err := o.Other.PutDocument(o.Context(), here); err != nil || !ok {
		o.Fatal(ok, err)
	}
	is("here")
	if seen, after := o.documents(before); len(seen) != 1 || after <= before {
		o.Fatalf("the nodes do not hear of it: %+v", seen)
	}
	if ok, err := o.Owner.PutDocument(o.Context(), here); err != nil || ok {
		o.Fatal("it was stored twice", err)
	}
	newer := o.answer()
	newer.History = allocation.History{Number: 2, Stamp: "h2"}
	o.apply(newer)
	is("here", "another", "told") // those made here first
	call, _, err := o.Owner.StateHeld(o.Context(), o.w, 0)
	o.must(err)
	if len(call.Documents) != 3 || call.DocumentsThrough != 0 { // in the new history nothing was told yet
		o.Fatalf("%+v", call)
	}
	// An answer of the history before is too late to tell anything; one of the present history settles what it names.
	o.tell(6, document("told", 2, 5))
	is("here", "another", "told")
	newer.Documents, newer.DocumentsThrough = []allocation.Document{document("told", 1, 2), document("here", 1, 9)}, 9
	o.apply(newer)
	is("another")
	if all, _ := o.documents(0); all["told"].Version != 2 || all["here"].Number != 9 {
		o.Fatalf("%+v", all)
	}
}
