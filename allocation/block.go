package allocation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// KindBlock is the kind of a Document that blocks.
const KindBlock = "block"

// Bounds of blocks.
const (
	MaxBlockFor    = 366 * Day
	MaxBlockReason = 500 // bytes
)

// Block refuses every request with some labels, or of one key, until it ends by itself. It wins over everything; what was
// admitted is settled and released all the same. Its end is Final: it is never put into force again, a new one is made.
type Block struct {
	Match       Labels   `json:"match,omitempty"`       // all of them; empty: by Fingerprint alone
	Fingerprint string   `json:"fingerprint,omitempty"` // of a key: one of ours, or an external one that a gateway names
	Regions     []string `json:"regions,omitempty"`     // where it counts; empty: everywhere
	From        Instant  `json:"from"`
	Until       Instant  `json:"until"` // never Never
	Reason      string   `json:"reason"`
	By          string   `json:"by"`
	Lifted      *Lifted  `json:"lifted,omitempty"`
}

// Lifted says who ended something before its time.
type Lifted struct {
	At     Instant `json:"at"`
	By     string  `json:"by"`
	Reason string  `json:"reason,omitempty"`
}

// Block reads a document of KindBlock.
func (d Document) Block() (Block, error) {
	var b Block
	if d.Kind != KindBlock {
		return b, fmt.Errorf("%s %s is no block", d.Kind, d.Name)
	}
	err := json.Unmarshal(d.Body, &b)
	return b, err
}

// Validate returns Problems that name the field, or nil.
func (b Block) Validate() error {
	var found Problems
	if len(b.Match) == 0 && b.Fingerprint == "" {
		found.add("match", "is missing", "name the labels to block, such as tenant=acme, or the fingerprint of a key")
	}
	found = append(found, b.Match.problems("match")...)
	if b.Fingerprint != "" && !ValidFingerprint(b.Fingerprint) {
		found.add("fingerprint", fmt.Sprintf("%.40q is not a fingerprint", b.Fingerprint), "give the one that the key is listed by, never the key itself")
	}
	switch {
	case b.Until == 0 || b.Until == Never:
		found.add("for", "is missing: a block must have an end", "give a duration such as 2h, and block again if it is not enough")
	case b.Until <= b.From:
		found.add("for", "ends before it begins", "give a duration such as 2h")
	case b.Until-b.From > Instant(MaxBlockFor):
		found.add("for", "is longer than a year", "give at most 366d; what is to be refused for ever is a budget of limit 0")
	}
	if strings.TrimSpace(b.Reason) == "" || len(b.Reason) > MaxBlockReason {
		found.add("reason", "is missing or too long", fmt.Sprintf("say why in 1 to %d bytes: it stands in the audit and in every refusal's evidence", MaxBlockReason))
	}
	if b.By == "" || len(b.By) > MaxLabelValue {
		found.add("by", "is missing or too long", "name who blocks")
	}
	return found.err()
}

// Says is what it blocks, for a person.
func (b Block) Says() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(b.Match)) {
		parts = append(parts, name+"="+b.Match[name])
	}
	if b.Fingerprint != "" {
		parts = append(parts, "key "+b.Fingerprint)
	}
	return strings.Join(parts, " ")
}

// Counts says whether the block is in force in a region now.
func (b Block) Counts(region string, now Instant) bool {
	return b.Lifted == nil && now < b.Until && (len(b.Regions) == 0 || slices.Contains(b.Regions, region))
}

// hits says whether a request is what the block means.
func (b Block) hits(labels Labels, fingerprint string) bool {
	if b.Fingerprint != "" && b.Fingerprint != fingerprint {
		return false
	}
	for name, want := range b.Match {
		if labels[name] != want {
			return false
		}
	}
	return true
}
