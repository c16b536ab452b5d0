package archive_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/coordinator/archive"
)

func record(budget string, term allocation.Instant, spent int64) coordinator.Closing {
	return coordinator.Closing{
		Format: 1, Budget: budget, Unit: "requests", Term: term, Limit: 100,
		Regions: []coordinator.ClosedRegion{{Holder: allocation.Holder{Region: "eu", Incarnation: "a"}, Spent: spent}},
	}
}

func open(t *testing.T, name string) *archive.File {
	t.Helper()
	f, err := archive.Open(name, func(*os.File) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func appendTo(t *testing.T, f *archive.File, closings ...coordinator.Closing) {
	t.Helper()
	if err := f.Append(closings); err != nil {
		t.Fatal(err)
	}
}

// all reads page after page, as a client does.
func all(t *testing.T, f *archive.File, wanted func(string) bool, most int) (out []coordinator.Closing) {
	t.Helper()
	for after := ""; ; after = out[len(out)-1].Key() {
		page, err := f.Page(after, wanted, most)
		if err != nil {
			t.Fatal(err)
		}
		if out = append(out, page...); len(page) < most {
			return out
		}
	}
}

func every(string) bool { return true }

// The archive is the only copy. Each record must be there once after a restart, in order, and the later of two counts.
func TestArchiveKeepsEachRecordOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "closings.jsonl")
	f := open(t, name)
	appendTo(t, f, record("b", 60, 1), record("a", 120, 2), record("a", 60, 3))
	appendTo(t, f, record("a", 120, 4), record("c", 60, 5))
	for range 2 {
		for _, most := range []int{1, 2, 100} {
			var got []int64
			for _, c := range all(t, f, every, most) {
				got = append(got, c.Regions[0].Spent)
			}
			if !slices.Equal(got, []int64{3, 4, 1, 5}) {
				t.Errorf("in pages of %d: %v", most, got)
			}
		}
		if some := all(t, f, func(b string) bool { return b == "b" }, 1); len(some) != 1 || some[0].Budget != "b" {
			t.Errorf("of one budget: %+v", some)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		f = open(t, name)
	}
}

// A crash may tear what was not acknowledged. It must not take what was acknowledged with it, nor stop the next start.
func TestArchiveAfterACrash(t *testing.T) {
	name := filepath.Join(t.TempDir(), "closings.jsonl")
	f := open(t, name)
	appendTo(t, f, record("a", 60, 1))
	_ = f.Close()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	torn := string(text) + "\x00\x00\x00\n" + `{"format":1,"budget":"b","unit":"re`
	if err := os.WriteFile(name, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	f = open(t, name)
	if f.Damaged() != 1 {
		t.Errorf("%d lines are damaged", f.Damaged())
	}
	appendTo(t, f, record("b", 60, 2))
	_ = f.Close()
	f = open(t, name)
	if got := all(t, f, every, 10); len(got) != 2 || got[0].Regions[0].Spent != 1 || got[1].Regions[0].Spent != 2 {
		t.Errorf("%+v", got)
	}
	if text, _ = os.ReadFile(name); strings.Count(string(text), "\n") != 3 || !strings.HasSuffix(string(text), "}\n") {
		t.Errorf("%q", text)
	}
}

// Two processes that append to one file would write over each other.
func TestArchiveIsLocked(t *testing.T) {
	name := filepath.Join(t.TempDir(), "closings.jsonl")
	_, err := archive.Open(name, func(*os.File) error { return errors.New("locked") })
	if err == nil || !strings.Contains(err.Error(), "--closing-archive") {
		t.Error(err)
	}
	if _, err := archive.Open(filepath.Join(name, "none"), func(*os.File) error { return nil }); err == nil {
		t.Error("a file below a file was opened")
	}
}

// Where the file cannot be written the records must stay in etcd, and nobody may read what is not on disk.
func TestArchiveThatCannotBeWritten(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "closings.jsonl"))
	_ = f.Close()
	if err := f.Append([]coordinator.Closing{record("a", 60, 1)}); err == nil {
		t.Fatal("no error")
	}
	if page, err := f.Page("", every, 10); err != nil || len(page) != 0 {
		t.Errorf("%v %v", page, err)
	}
}

// Records are found by keys, and only shorter forms of them are kept. They must stand in the keys' order, whatever the names, and
// however the records come in; a page that begins in between must too.
func TestArchiveIsInTheOrderOfKeys(t *testing.T) {
	name := filepath.Join(t.TempDir(), "closings.jsonl")
	f := open(t, name)
	latest := map[string]int64{}
	spent := int64(0)
	for round := range 5 {
		var batch []coordinator.Closing
		for i, budget := range []string{"a", "a/b", "a-b", "a.b", "ab", "a/{caller}", "a_b", "A"} {
			for k := range 4 {
				spent++
				c := record(budget, allocation.Instant(60*((k*7+i*3+round*5)%11)), spent)
				batch, latest[c.Key()] = append(batch, c), spent
			}
		}
		appendTo(t, f, batch...)
	}
	keys := slices.Sorted(maps.Keys(latest))
	for range 2 {
		for from := range keys {
			page, err := f.Page(keys[from]+"!", every, 3)
			if err != nil {
				t.Fatal(err)
			}
			want := keys[min(len(keys), from+1):min(len(keys), from+4)]
			for i, c := range page {
				if c.Key() != want[i] || c.Regions[0].Spent != latest[want[i]] {
					t.Fatalf("behind %s record %d is %s with %d, not %s with %d", keys[from], i, c.Key(), c.Regions[0].Spent, want[i], latest[want[i]])
				}
			}
			if len(page) != len(want) {
				t.Fatalf("behind %s are %d records, not %d", keys[from], len(page), len(want))
			}
		}
		_ = f.Close()
		f = open(t, name)
	}
}
