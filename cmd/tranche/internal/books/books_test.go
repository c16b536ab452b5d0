package books

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
)

// Verify must know how old the ledgers were, the oldest page counting, and also from a coordinator that dates its status
// only. Else it says of an old account that it adds up today.
func TestReadDatesItsParts(t *testing.T) {
	for name, c := range map[string]struct {
		dated          bool
		earlier, later string
	}{
		"ledgers are dated": {true, "20s", "20s"},
		"only the status":   {false, "", "3s"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("Authorization") == "": // is this a coordinator?
				fmt.Fprint(w, `{"type":"urn:tranche:unauthorized"}`)
			case r.URL.Path == "/v1/status":
				fmt.Fprint(w, `{"deployment":"d","evidence_age_ms":3000}`)
			case !c.dated:
				fmt.Fprint(w, `{"revision":7,"ledgers":[]}`)
			case r.URL.Query().Get("after") == "":
				fmt.Fprint(w, `{"revision":8,"evidence_age_ms":20000,"ledgers":[],"next":"a"}`)
			default:
				fmt.Fprint(w, `{"revision":7,"evidence_age_ms":10,"ledgers":[]}`)
			}
		}))
		client, err := api.New("coordinator", server.URL, "x", "")
		if err != nil {
			t.Fatal(err)
		}
		r, err := Read(t.Context(), Sources{Coordinator: client, Now: time.Now})
		server.Close()
		if err != nil || len(r.Parts) != 2 {
			t.Fatalf("%s: %v %+v", name, err, r.Parts)
		}
		for i, want := range []string{c.earlier, c.later} {
			got := ""
			if age, told := r.Parts[i].Age(); told {
				got = age.String()
			}
			if got != want || r.Parts[i].Revision != 7 || r.Parts[i].From != server.URL {
				t.Errorf("%s: %+v, aged %q; want %q", name, r.Parts[i], got, want)
			}
		}
	}
}
