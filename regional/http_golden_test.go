package regional

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tranche/allocation"
)

var update = flag.Bool("update", false, "write what the API answers into testdata/http")

// goldenCases make each reason happen, on real decisions where those can be had. The request is the last one.
var goldenCases = map[allocation.Reason]func(w *apiWorld) *http.Response{
	allocation.Allow: func(w *apiWorld) *http.Response {
		w.owner.observed = apiStart - 1_500_000
		return w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme","metered":"yes"},"costs":{"tokens":1200},"op":"reserve"}`, "Admission-Id: a", "X-Request-Id: req-1")
	},
	allocation.RegionShareSpent: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"acme"},"costs":{"requests":58}}`)
		return w.admit("b", `{"labels":{"tenant":"acme","metered":"yes"},"costs":{"requests":3,"tokens":5}}`)
	},
	allocation.CeilingReached: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"prepaid"},"costs":{"usd_micros":5}}`)
		return w.admit("b", `{"labels":{"tenant":"prepaid"},"costs":{"usd_micros":1}}`)
	},
	allocation.CapacityStranded: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"acme"},"costs":{"requests":60}}`)
		w.owner.elsewhere["acme/requests"] = allocation.Elsewhere{Budget: "acme/requests", Period: allocation.Instant(apiStart/60_000_000) * 60, Limit: 100, Generation: 11, Stranded: 40}
		return w.admit("b", `{"labels":{"tenant":"acme"}}`)
	},
	allocation.TooManyInstances: func(w *apiWorld) *http.Response {
		w.owner.full["users/{user}"] = true
		user := "a"
		for ; !atHome(w, user); user += "a" {
		}
		return w.admit("a", `{"labels":{"tenant":"users","user":"`+user+`"}}`)
	},
	allocation.OnlyProtectedLeft: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"guarded"},"costs":{"requests":2}}`)
		return w.admit("b", `{"labels":{"tenant":"guarded"},"priority":"batch"}`)
	},
	allocation.Deferred: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"stepped"},"costs":{"requests":7}}`)
		return w.admit("b", `{"labels":{"tenant":"stepped"},"priority":"batch"}`)
	},
	allocation.LadderRefused: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"stepped"},"costs":{"requests":9}}`)
		return w.admit("b", `{"labels":{"tenant":"stepped"},"priority":"batch"}`)
	},
	allocation.ScopeDenied: func(w *apiWorld) *http.Response {
		w.live = NewLiveTokens(twoTokens(w.t))
		defer func() { w.live = NewLiveTokens(nil) }()
		return w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"},"priority":"essential"}`, "Admission-Id: a", "Authorization: Bearer "+tokenA)
	},
	allocation.Blocked: func(w *apiWorld) *http.Response {
		w.learn(blockDocument("b-1", allocation.Block{Match: allocation.Labels{"tenant": "acme"}, Until: worldEnd, Reason: "leak", By: "kim"}))
		return w.admit("a", `{"labels":{"tenant":"acme"}}`)
	},
	allocation.KeyUnknown: func(w *apiWorld) *http.Response {
		return w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id: a", "Authorization: Bearer "+worldKey)
	},
	allocation.KeyRevoked: func(w *apiWorld) *http.Response {
		w.learn(keyDocument(func(k *allocation.Key) { k.Revoked = &allocation.Lifted{At: 1, By: "kim"} }))
		return w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id: a", "Authorization: Bearer "+worldKey)
	},
	allocation.CostExceedsLimit: func(w *apiWorld) *http.Response {
		return w.admit("a", `{"labels":{"tenant":"acme"},"costs":{"requests":101}}`)
	},
	allocation.CostUnknown: func(w *apiWorld) *http.Response {
		return w.admit("a", `{"labels":{"tenant":"acme","metered":"yes"}}`)
	},
	allocation.NoBudget: func(w *apiWorld) *http.Response { return w.admit("a", `{"labels":{"tenant":"nobody"}}`) },
	allocation.AdmissionIDConflict: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"acme"}}`)
		return w.admit("a", `{"labels":{"tenant":"acme","route":"x"}}`)
	},
	allocation.TooManyBudgets: func(w *apiWorld) *http.Response { return w.admit("a", `{"labels":{"tenant":"many"}}`) },
	allocation.LabelMissing:   func(w *apiWorld) *http.Response { return w.admit("a", `{"labels":{"tenant":"users"}}`) },
	allocation.AdmissionIDReleased: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"acme"},"op":"reserve"}`)
		w.call("POST", "/v1/release", `{"tenant":"acme"}`, "Admission-Id: a")
		return w.admit("a", `{"labels":{"tenant":"acme"},"op":"reserve"}`)
	},
	allocation.AdmissionIDSettled: func(w *apiWorld) *http.Response {
		w.admit("a", `{"labels":{"tenant":"acme"}}`)
		return w.call("POST", "/v1/release", `{"tenant":"acme"}`, "Admission-Id: a")
	},
	allocation.AdmissionIDUnknown: func(w *apiWorld) *http.Response {
		return w.call("POST", "/v1/settle", `{"tenant":"acme","costs":{"tokens":900}}`, "Admission-Id: a")
	},
	allocation.AdmissionIDMissing: func(w *apiWorld) *http.Response {
		return w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`)
	},
	allocation.NotHome: func(w *apiWorld) *http.Response { return w.admit("a", `{"labels":{"tenant":"eu"}}`) },
	allocation.EvidenceStale: func(w *apiWorld) *http.Response {
		w.owner.observed = apiStart - 60_000_000
		return w.admit("a", `{"labels":{"tenant":"fresh"}}`)
	},
	allocation.NoAllocation: func(w *apiWorld) *http.Response { return w.admit("a", `{"labels":{"tenant":"new"}}`) },
	allocation.Sealed: func(w *apiWorld) *http.Response {
		w.owner.sealed["acme/requests"] = true
		return w.admit("a", `{"labels":{"tenant":"acme"}}`)
	},
	allocation.ClockBehind: func(w *apiWorld) *http.Response {
		w.owner.closed = allocation.Instant(apiStart/1_000_000) + 3600
		return w.admit("a", `{"labels":{"tenant":"acme"}}`)
	},
	allocation.Frozen:              stoppedBy(allocation.Frozen),
	allocation.HistoryLost:         stoppedBy(allocation.HistoryLost),
	allocation.Starting:            stoppedBy(allocation.Starting),
	allocation.UnsafeSettings:      stoppedBy(allocation.UnsafeSettings),
	allocation.Overloaded:          forcedBy(allocation.Overloaded),
	allocation.DatabaseUnavailable: forcedBy(allocation.DatabaseUnavailable),
	allocation.OutcomeUnknown:      forcedBy(allocation.OutcomeUnknown),
}

func stoppedBy(r allocation.Reason) func(w *apiWorld) *http.Response {
	return func(w *apiWorld) *http.Response {
		w.owner.stopped = r
		return w.admit("a", `{"labels":{"tenant":"acme"}}`)
	}
}

func forcedBy(r allocation.Reason) func(w *apiWorld) *http.Response {
	return func(w *apiWorld) *http.Response {
		w.owner.force = r
		return w.admit("a", `{"labels":{"tenant":"acme"}}`)
	}
}

// If this failed, what a caller is told of some reason would have changed without anybody looking at it.
func TestAPIAnswerOfEachReason(t *testing.T) {
	for _, row := range allocation.Answers() {
		t.Run(string(row.Reason), func(t *testing.T) {
			make, ok := goldenCases[row.Reason]
			if !ok {
				t.Fatal("no case makes this reason happen")
			}
			r := make(newAPIWorld(t))
			text := goldenText(t, r)
			if !strings.Contains(text, `"reason": "`+string(row.Reason)+`"`) {
				t.Fatalf("another reason: %s", text)
			}
			// A budget may have a status of its own for its ceiling; this one has.
			if want := row.Status; r.StatusCode != want && row.Reason != allocation.CeilingReached {
				t.Errorf("status %d, the table has %d", r.StatusCode, want)
			}
			checkRefusal(t, row, r, text)
			compareGolden(t, string(row.Reason), text)
		})
	}
}

// checkRefusal holds what the design says of all refusals against one.
func checkRefusal(t *testing.T, row allocation.Answer, r *http.Response, text string) {
	t.Helper()
	if row.Reason == allocation.Allow {
		return
	}
	if r.Header.Get("Content-Type") != problemJSON || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", r.Header)
	}
	timed := row.Retry == allocation.RetrySoon || row.Retry == allocation.RetryNextPeriod || row.Retry == allocation.RetrySameID
	if got := r.Header.Get("Retry-After") != ""; got != timed {
		t.Errorf("Retry-After %q with retry %s", r.Header.Get("Retry-After"), row.Retry)
	}
	if unknown := row.Reason == allocation.OutcomeUnknown; unknown != strings.Contains(text, `"outcome": "unknown"`) {
		t.Error("the outcome is told wrongly")
	}
}

// goldenText is the status, the headers and the body, as a person reads them.
func goldenText(t *testing.T, r *http.Response) string {
	t.Helper()
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d %s\n", r.StatusCode, http.StatusText(r.StatusCode))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if name != "Content-Length" && name != "X-Content-Type-Options" {
			fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
		}
	}
	out.WriteByte('\n')
	if err := json.Indent(&out, []byte(bodyOf(t, r)), "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func compareGolden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", "http", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./regional -run TestAPI -update", err)
	}
	if string(want) != text {
		t.Errorf("the answer changed; if it should, write it with: go test ./regional -run TestAPI -update\n--- want\n%s\n--- got\n%s", want, text)
	}
}
