package coordinator_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"tranche/allocation"
)

func note(name string) allocation.DocumentRef {
	return allocation.DocumentRef{Kind: "note", Name: name}
}

func (w *world) note(r *replica, name, says string, final bool) {
	w.t.Helper()
	if err := r.PutDocument(w.t.Context(), note(name), map[string]string{"says": says}, final); err != nil {
		w.t.Fatal(err)
	}
}

// says is what a region knows by a name; empty: nothing.
func (f *fakeRegion) says(name string) string {
	var body struct{ Says string }
	_ = json.Unmarshal(f.documents[note(name)].Body, &body)
	return body.Says
}

// A document that does not reach a region is not enforced there; one that is told again and again keeps it from its rest.
func TestDocumentsAreCarried(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.note(r, "a", "one", false)
	w.note(r, "a", "two", false)
	for i := range allocation.MaxDocumentsPerAnswer + 20 {
		w.note(r, fmt.Sprint("many-", i), "x", false)
	}
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
		if f.says("a") != "two" || len(f.documents) != allocation.MaxDocumentsPerAnswer+21 || f.documents[note("a")].Version != 2 {
			t.Errorf("%s knows %d documents, and of a that %q", f.name, len(f.documents), f.says("a"))
		}
	}
	// A program that stored the configuration without documents is told all of them.
	east.through, east.documents = 0, map[allocation.DocumentRef]fakeDocument{}
	east.untilQuiet(r)
	if len(east.documents) != len(west.documents) {
		t.Errorf("%d documents, not %d", len(east.documents), len(west.documents))
	}
	held := make(chan allocation.SyncAnswer)
	call := east.call()
	call.WaitMillis = 60_000
	go func() {
		a, err := r.Sync(t.Context(), call)
		if err != nil {
			t.Error(err)
		}
		held <- a
	}()
	w.note(r, "a", "three", true)
	select {
	case a := <-held:
		if len(a.Documents) != 1 || !a.Documents[0].Final {
			t.Errorf("%+v", a.Documents)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a held call is not woken by a document")
	}
}

// A restored etcd forgets what was ended since: a key would be valid again, a block be over. Every region's memory counts,
// and the freeze does not end before all of it is heard.
func TestARestoredEtcdForgetsNoDocument(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.note(r, "ended", "valid", false)
	w.note(r, "changed", "before", false)
	backup := w.backup()
	w.note(r, "ended", "over", true)
	w.note(r, "changed", "after", false)
	w.note(r, "new", "made since", false)
	east.untilQuiet(r) // west hears of none of it
	w.restore(backup)
	if d, _ := r.Document(note("ended")); d.Final {
		t.Fatal("the backup knows what came after it")
	}
	west.sync(r)
	east.sync(r)
	if w.standing().Freeze == nil {
		t.Fatal("that the configuration went back was not noticed")
	}
	w.note(r, "ended", "valid", false) // a change under the new history does not undo the end
	w.round(r, east, west)
	if w.standing().Freeze != nil {
		t.Fatal("it is still frozen")
	}
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
		if !f.documents[note("ended")].Final || f.says("changed") != "after" || f.says("new") != "made since" {
			t.Errorf("%s holds %+v", f.name, f.documents)
		}
	}
	if d, _ := r.Document(note("ended")); !d.Final {
		t.Error("what was ended is not ended in etcd")
	}
	if n := len(w.acts(r, "note.restated")); n != 3 {
		t.Errorf("%d audit lines tell of what was taken over", n)
	}
	if east.untold() != nil || west.untold() != nil {
		t.Error("a region goes on stating what was told")
	}
}

// The freeze must wait for what a region holds of the configuration, or another one takes a key that was revoked.
func TestTheFreezeWaitsForDocuments(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	backup := w.backup()
	for i := range allocation.MaxDocumentsPerCall + 1 {
		w.note(r, fmt.Sprint("many-", i), "x", true)
	}
	east.untilQuiet(r)
	w.restore(backup)
	for range 3 {
		west.sync(r)
	}
	for w.standing().Freeze == nil {
		east.sync(r)
	}
	for range 20 {
		before := len(east.untold())
		frozen := w.standing().Freeze != nil
		if before > 0 && !frozen {
			t.Fatalf("it thawed while %d documents were not heard", before)
		}
		east.sync(r)
		west.sync(r)
	}
	if w.standing().Freeze != nil || len(east.untold()) > 0 {
		t.Errorf("frozen, or %d documents are not heard", len(east.untold()))
	}
}

// A region's word makes no document that etcd cannot have lost: else the token of one region would issue keys for all.
func TestARegionMakesNoDocumentsForOthers(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	east.sync(r)
	forged := allocation.Document{Kind: "note", Name: "forged", Version: 1, Number: 1, Made: east.history, Body: []byte(`{"says":"open"}`)}
	here := forged
	here.Name, here.Number = "here", 0
	block := func(name string, regions ...string) allocation.Document {
		body, err := json.Marshal(allocation.Block{Match: allocation.Labels{"tenant": "acme"}, Regions: regions, Until: 9e9, Reason: "leak", By: "op"})
		if err != nil {
			t.Fatal(err)
		}
		return allocation.Document{Kind: allocation.KindBlock, Name: name, Version: 1, Body: body}
	}
	for _, d := range []allocation.Document{forged, here, block("own", "us-east"), block("others", "eu-west"), block("all")} {
		east.documents[d.Ref()] = fakeDocument{d, -1}
	}
	east.sync(r)
	east.sync(r)
	west.untilQuiet(r)
	for name, want := range map[allocation.DocumentRef]bool{
		note("forged"): false, note("here"): false, {Kind: allocation.KindBlock, Name: "own"}: true,
		{Kind: allocation.KindBlock, Name: "others"}: false, {Kind: allocation.KindBlock, Name: "all"}: false,
	} {
		if _, known := west.documents[name]; known != want {
			t.Errorf("%v: the other region knows it: %v", name, known)
		}
	}
	if len(east.untold()) != 4 {
		t.Errorf("%d documents are not told", len(east.untold()))
	}
}
