package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const small = `start: 2026-03-02T00:00:00Z
duration: 20m
step: 10s
regions:
  - {name: a, round_trip: 10ms}
  - {name: b, round_trip: 90ms, to: {a: 80ms}}
budgets:
  - budget: x
    unit: tokens
    limit: 3000
    window: {every: 1m}
    allocation: {policy: fixed, weights: {a: 1, b: 1}}
demand:
  - {budget: x, rate: 12, noise: 0.2, cost: {uniform: [1, 9]}}
events:
  - {event: partition, region: b, at: 5m, until: 10m}
`

func parsed(t *testing.T, text string) Scenario {
	t.Helper()
	s, err := parse("small.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func reportOf(t *testing.T, s Scenario, seed uint64) (Report, []byte, []byte) {
	t.Helper()
	r, err := Run(t.Context(), s, Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	page, err := r.HTML()
	if err != nil {
		t.Fatal(err)
	}
	return r, text, page
}

// A seed names a run: who replays it must get the same bytes, and another seed must be another run.
func TestSameSeedSameBytes(t *testing.T) {
	s := parsed(t, small)
	_, text, page := reportOf(t, s, 7)
	_, again, pageAgain := reportOf(t, s, 7)
	if !bytes.Equal(text, again) || !bytes.Equal(page, pageAgain) {
		t.Error("the same seed made other files")
	}
	if _, other, _ := reportOf(t, s, 8); bytes.Equal(text, other) {
		t.Error("another seed made the same file")
	}
}

// The files are what programs and browsers read; a page that loads something cannot be sent to anybody.
func TestFiles(t *testing.T) {
	r, _, _ := reportOf(t, parsed(t, small), 1)
	dir := filepath.Join(t.TempDir(), "made")
	if err := r.WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.Format != ReportFormat || len(back.Series) != 6 || len(back.Series[0].Budgets[0].Regions[0].Spent) != 120 {
		t.Errorf("format %d, %d series", back.Format, len(back.Series))
	}
	if n := bytes.Count(text, []byte("\n")); n > 3000 {
		t.Errorf("%d lines: lists of numbers should take one each", n)
	}
	page, err := os.ReadFile(filepath.Join(dir, HTMLFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, never := range []string{"http:", "https:", "src=", "<script", "NaN", "@import", "ZgotmplZ", "%!"} {
		if bytes.Contains(page, []byte(never)) {
			t.Errorf("the page holds %q", never)
		}
	}
	for _, must := range []string{"The trade: Tranche beside a single home (a)", "b is cut off", "counters that sync later", "capacity_stranded"} {
		if !bytes.Contains(page, []byte(must)) {
			t.Errorf("the page does not say %q", must)
		}
	}
	checkSVG(t, string(page))
}

// checkSVG holds each picture to be well formed.
func checkSVG(t *testing.T, page string) {
	t.Helper()
	pictures := 0
	for _, part := range strings.Split(page, "<svg")[1:] {
		picture, _, closed := strings.Cut("<svg"+part, "</svg>")
		pictures++
		d := xml.NewDecoder(strings.NewReader(picture + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil || !closed {
				t.Fatalf("picture %d: %v", pictures, err)
			}
		}
	}
	if pictures < 9 {
		t.Errorf("%d pictures", pictures)
	}
}

// Who waits sees that it goes on, and can stop it.
func TestProgressAndCancel(t *testing.T) {
	var last float64
	s := parsed(t, small)
	_, err := Run(t.Context(), s, Options{Progress: func(_ string, done float64) {
		if done < last || done > 1 {
			t.Errorf("%f after %f", done, last)
		}
		last = done
	}})
	if err != nil || last != 1 {
		t.Errorf("%v, done %f", err, last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, s, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
