package regional

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"tranche/allocation"
)

const (
	blocksPath = "/v1/blocks"
	liftPath   = "/v1/blocks/lift"
)

// maxBlockBytes bounds the body of a block.
const maxBlockBytes = 64 << 10

// DocumentMaker is a Backend that stores documents which are made in its region.
type DocumentMaker interface {
	// PutDocument stores a document; false: what is stored is not to be replaced by it. Once it returns, every decision of
	// every node of the region that begins goes by it.
	PutDocument(ctx context.Context, d allocation.Document) (bool, error)
}

// PutDocument stores a document that is made in this region.
func (n *Node) PutDocument(ctx context.Context, d allocation.Document) (bool, error) {
	stored, err := n.owner.PutDocument(ctx, d)
	if err == nil {
		n.reload(ctx)
	}
	return stored, err
}

// blockBody is a block as it is listed; Told says that the coordinator knows of it.
type blockBody struct {
	ID string `json:"id"`
	allocation.Block
	InForce bool `json:"in_force"`
	Told    bool `json:"told"`
}

type blocksBody struct {
	Region string      `json:"region"`
	Blocks []blockBody `json:"blocks"`
}

// blockRequest makes a block, or with id lifts one.
type blockRequest struct {
	ID          string              `json:"id,omitempty"`
	Match       allocation.Labels   `json:"match,omitempty"`
	Fingerprint string              `json:"fingerprint,omitempty"`
	For         allocation.Duration `json:"for,omitempty"`
	Reason      string              `json:"reason,omitempty"`
	By          string              `json:"by,omitempty"`
}

// mayOperate refuses a credential that is no operator's. Without tokens anybody on this machine may.
func (a *api) mayOperate(caller string) *fault {
	list := a.tokens()
	if t, _ := list.of(caller); t.Operator || len(list) == 0 {
		return nil
	}
	f := reasonFault(allocation.ScopeDenied, "credential "+caller+" is not an operator's: only such a one may do this; use another, or write operator behind its token in the node's token file")
	return &f
}

// blocks answers GET and POST /v1/blocks: the blocks that this region knows, and one of its own, for when the coordinator
// cannot be reached. It counts in this region, at once; the coordinator is told when it can be reached again.
func (a *api) blocks(w http.ResponseWriter, r *http.Request, caller string) {
	if r.Method != http.MethodPost {
		if refused := a.listsAll(caller); refused != nil {
			writeFault(w, *refused)
			return
		}
		body := blocksBody{Region: a.Catalogue().Region, Blocks: []blockBody{}}
		for _, d := range a.Catalogue().Documents(allocation.KindBlock) {
			if b, err := d.Block(); err == nil {
				body.Blocks = append(body.Blocks, a.blockOf(d, b))
			}
		}
		writeJSON(w, http.StatusOK, "application/json", body)
		return
	}
	q, wrong := a.readBlock(w, r, caller)
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	now := allocation.At(a.config.Now())
	b := allocation.Block{Match: q.Match, Fingerprint: q.Fingerprint, Regions: []string{a.Catalogue().Region}, From: now, Reason: q.Reason, By: by(q.By, caller)}
	if q.For != 0 {
		b.Until = now + allocation.Instant(q.For)
	}
	if err := b.Validate(); err != nil {
		writeFault(w, *invalid(err.(allocation.Problems)...))
		return
	}
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	a.putBlock(w, r, allocation.Document{Kind: allocation.KindBlock, Name: "b-" + hex.EncodeToString(id), Version: 1}, b)
}

// lift answers POST /v1/blocks/lift: it ends a block that was made in this region. One that counts in others is for the
// coordinator to lift.
func (a *api) lift(w http.ResponseWriter, r *http.Request, caller string) {
	q, wrong := a.readBlock(w, r, caller)
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	if strings.TrimSpace(q.Reason) == "" || len(q.Reason) > allocation.MaxBlockReason {
		writeFault(w, *invalid(allocation.FieldError{Field: "reason", Problem: "is missing or too long", Fix: fmt.Sprintf("say why it is lifted, in 1 to %d bytes: it stands in the audit", allocation.MaxBlockReason)}))
		return
	}
	d, known := a.Catalogue().Document(allocation.KindBlock, q.ID)
	b, err := d.Block()
	switch {
	case !known || err != nil:
		writeFault(w, fault{kind: notFound, detail: "this region knows no block of that id; see GET " + blocksPath})
		return
	case !allocation.MadeInRegion(a.Catalogue().Region, d):
		writeFault(w, reasonFault(allocation.ScopeDenied, "the block counts in other regions, too: lift it at the coordinator with tranche unblock"))
		return
	case b.Lifted == nil:
		b.Lifted = &allocation.Lifted{At: allocation.At(a.config.Now()), By: by(q.By, caller), Reason: q.Reason}
	}
	d.Version, d.Final = d.Version+1, true
	a.putBlock(w, r, d, b)
}

func by(person, caller string) string {
	if person == "" {
		return caller
	}
	return person + " (token " + caller + ")"
}

func (a *api) blockOf(d allocation.Document, b allocation.Block) blockBody {
	return blockBody{ID: d.Name, Block: b, InForce: b.Counts(a.Catalogue().Region, allocation.At(a.config.Now())), Told: d.Number > 0}
}

func (a *api) readBlock(w http.ResponseWriter, r *http.Request, caller string) (q blockRequest, wrong *fault) {
	if f := a.mayOperate(caller); f != nil {
		return q, f
	}
	if f := jsonOnly(r.Header); f != nil {
		return q, f
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBlockBytes))
	d.DisallowUnknownFields()
	err := d.Decode(&q)
	if _, more := d.Token(); err == nil && more != io.EOF {
		return q, invalid(allocation.FieldError{Field: "body", Problem: "holds more than one document", Fix: "send one"})
	}
	if err != nil {
		return q, invalid(allocation.FieldError{Field: "body", Problem: "is not the JSON of a block", Fix: "send match or fingerprint, for, reason and by; to lift: id, reason and by"})
	}
	return q, nil
}

func (a *api) putBlock(w http.ResponseWriter, r *http.Request, d allocation.Document, b allocation.Block) {
	to, able := a.Backend.(DocumentMaker)
	body, err := json.Marshal(b)
	if !able || err != nil {
		writeFault(w, reasonFault(allocation.Starting, "the node has no database yet"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	d.Body = body
	if _, err := to.PutDocument(ctx, d); err != nil {
		a.config.Logger.Debug("store a block", "error", err)
		writeFault(w, readFault(err))
		return
	}
	a.config.Logger.Warn("a block was made or lifted in this region", "id", d.Name, "blocks", b.Says(), "until", b.Until.String(), "lifted", b.Lifted != nil, "by", b.By)
	writeJSON(w, http.StatusOK, "application/json", a.blockOf(d, b))
}
