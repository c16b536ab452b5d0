package allocation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Document is a piece of the configuration other than a budget: a key, a block, and whatever kinds come later. It is carried
// as it is, by its kind and name, so that a region keeps also those kinds that its program does not know yet.
//
//	coordinator (etcd) ──answer──▶ owner (Postgres) ──change number──▶ every batch of every node
//	        ▲                            │
//	        └──── what the coordinator has not told under this history ◀┘
//
// A document only moves forward: see Replaces. The region's memory is durable, and speaks up: what the coordinator did not
// tell it under the present history of etcd it states, so a revocation or a block that etcd lost is there again before the
// freeze ends. A document that was made in the region, while it was cut off, is stated in the same way.
type Document struct {
	Kind    string          `json:"kind"`
	Name    string          `json:"name"`
	Version int64           `json:"version"`
	Number  int64           `json:"number"`          // the configuration number of the change; 0: made in a region, not taken over yet
	Final   bool            `json:"final,omitempty"` // a revoked key, a lifted block: nothing comes after it
	Made    History         `json:"made,omitzero"`   // of etcd, under which this version was made
	Body    json.RawMessage `json:"body"`
}

// Bounds of documents.
const (
	MaxDocumentBytes      = 64 << 10 // of a body
	MaxDocumentName       = 255
	MaxDocumentsPerAnswer = 200
	MaxDocumentsPerCall   = 200 // the rest follows in the next call
)

// DocumentRef names a document.
type DocumentRef struct{ Kind, Name string }

// Ref is the document's name.
func (d Document) Ref() DocumentRef { return DocumentRef{d.Kind, d.Name} }

// Compare orders references by kind, then by name, bytewise.
func (r DocumentRef) Compare(o DocumentRef) int {
	return cmp.Or(compare(r.Kind, o.Kind), compare(r.Name, o.Name))
}

// Replaces says whether a store that holds o is to hold d instead. What is final stays: not even a later version undoes it,
// since it may come from a history in which the end was lost.
func (d Document) Replaces(o Document) bool {
	switch {
	case d.Final != o.Final:
		return d.Final
	case d.Version != o.Version:
		return d.Version > o.Version
	}
	return d.Number > o.Number
}

// Check refuses what is no document.
func (d Document) Check() error {
	switch {
	case d.Kind == "" || len(d.Kind) > MaxLabelName || d.Name == "" || len(d.Name) > MaxDocumentName:
		return fmt.Errorf("a document of kind %.70q is named %.70q: names have 1 to %d bytes", d.Kind, d.Name, MaxDocumentName)
	case d.Version <= 0 || d.Number < 0:
		return fmt.Errorf("%s %s has version %d and number %d: versions count from 1", d.Kind, d.Name, d.Version, d.Number)
	case len(d.Body) > MaxDocumentBytes || !json.Valid(d.Body):
		return fmt.Errorf("%s %s has a body of %d bytes: it is JSON of at most %d", d.Kind, d.Name, len(d.Body), MaxDocumentBytes)
	}
	return nil
}

// NewestDocuments keeps, of each document, the one that replaces the others, in the order of their names.
func NewestDocuments(list []Document) []Document {
	out := make([]Document, 0, len(list))
	for _, d := range slices.SortedStableFunc(slices.Values(list), func(a, b Document) int { return a.Ref().Compare(b.Ref()) }) {
		switch last := len(out) - 1; {
		case last < 0 || out[last].Ref() != d.Ref():
			out = append(out, d)
		case d.Replaces(out[last]):
			out[last] = d
		}
	}
	return out
}

// MadeInRegion says whether a region may make, or end, this document by itself, for itself.
func MadeInRegion(region string, d Document) bool {
	switch d.Kind {
	case KindBlock:
		b, err := d.Block()
		return err == nil && len(b.Regions) == 1 && b.Regions[0] == region
	}
	return false
}
