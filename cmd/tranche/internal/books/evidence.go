package books

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"time"

	"tranche/allocation"
)

// evidenceFormat is the format number of an evidence file.
const evidenceFormat = 1

// maxEvidence bounds an evidence file that is read.
const maxEvidence = 1 << 30

// Evidence is a whole account, kept with what was found in it.
type Evidence struct {
	Format     int                      `json:"format"`
	Kind       string                   `json:"kind"` // "tranche evidence"
	Deployment string                   `json:"deployment"`
	Taken      time.Time                `json:"taken"`
	Version    string                   `json:"version"`
	NotRead    map[string]string        `json:"not_read,omitempty"` // regions, and why
	Readings   []Part                   `json:"readings,omitempty"` // what the books were read from, and how old it was
	Report     allocation.AccountReport `json:"report"`
	Books      allocation.Books         `json:"books"`
}

const evidenceKind = "tranche evidence"

// Judge makes evidence of a reading.
func Judge(r Reading, taken time.Time, version string) Evidence {
	return Evidence{
		Format: evidenceFormat, Kind: evidenceKind, Deployment: r.Deployment, Taken: taken.UTC(), Version: version,
		NotRead: r.Failed, Readings: r.Parts, Report: allocation.Verify(r.Books), Books: r.Books,
	}
}

// Save writes the file, whole or not at all.
func (e Evidence) Save(path string) error {
	text, err := json.MarshalIndent(e, "", " ")
	if err != nil {
		return fmt.Errorf("write the evidence: %w", err)
	}
	temporary := path + ".part"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the evidence: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write the evidence: %w", err)
	}
	return nil
}

// Open reads a file and judges its books again. It is an error if the report in the file is not what its books say.
func Open(path string) (Evidence, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Evidence{}, fmt.Errorf("read the evidence: %w", err)
	}
	if info.Size() > maxEvidence {
		return Evidence{}, fmt.Errorf("%s has %d bytes; evidence has at most %d", path, info.Size(), maxEvidence)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Evidence{}, fmt.Errorf("read the evidence: %w", err)
	}
	e, err := parse(text)
	if err != nil {
		return Evidence{}, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

// parse reads evidence and judges it again. Whoever wrote it need not be trusted.
func parse(text []byte) (Evidence, error) {
	var e Evidence
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || e.Kind != evidenceKind {
		return Evidence{}, fmt.Errorf("this is no evidence file (%v); `tranche verify --export FILE` makes one", err)
	}
	if e.Format != evidenceFormat {
		return Evidence{}, fmt.Errorf("it is of format %d and this program knows %d; use a newer tranche", e.Format, evidenceFormat)
	}
	if !same(allocation.Verify(e.Books), e.Report) {
		return Evidence{}, fmt.Errorf("the report in it is not what its own books say: it was changed, or made by another version (%s)", e.Version)
	}
	return e, nil
}

// same compares by what is written: an empty list and none are alike.
func same(a, b allocation.AccountReport) bool {
	var x, y any
	for v, to := range map[*any]allocation.AccountReport{&x: a, &y: b} {
		text, err := json.Marshal(to)
		if err != nil || json.Unmarshal(text, v) != nil {
			return false
		}
	}
	return reflect.DeepEqual(x, y)
}
