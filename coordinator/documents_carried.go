package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"tranche/allocation"
)

// Configuration other than budgets is carried to the regions as allocation.Document, whatever its kind:
//
//	/tranche/documents/KIND/NAME   one document
//
// Its number is the deployment's configuration number at its change, so a region asks for all that came after what it has
// stored. A region that holds one which it was not told under the present history states it: takeDocuments enters what
// etcd lost, and what was made in the region while it was cut off.
const documentPrefix = Root + "documents/"

func documentKey(ref allocation.DocumentRef) string {
	return documentPrefix + url.PathEscape(ref.Kind) + "/" + url.PathEscape(ref.Name)
}

// ConfigDocument is a carried document, as it is stored.
type ConfigDocument struct {
	Format int `json:"format"`
	allocation.Document
	Changed time.Time `json:"changed"`
	By      string    `json:"by"` // the name of the token
}

// maxDocuments bounds how many documents a deployment has, with those that are final: they are remembered.
const maxDocuments = 200_000

type documentChange struct {
	number int64
	ref    allocation.DocumentRef
}

// carried are the documents that are carried to the regions.
type carried struct {
	documents       map[allocation.DocumentRef]*doc[ConfigDocument]
	documentChanges []documentChange // by number; superseded ones are left out when it is read
	enforcing       waiters          // calls that wait for regions to store documents
}

func (c *carried) clear() {
	c.documents, c.documentChanges = map[allocation.DocumentRef]*doc[ConfigDocument]{}, nil
}

// enterDocument takes one document. Numbers only rise, also through a restore, so it belongs at the end.
func (s *state) enterDocument(d *doc[ConfigDocument]) {
	ref := d.value.Ref()
	s.documents[ref] = d
	if ref.Kind == allocation.KindBlock {
		s.feed.touch(topic{kind: 'd'})
	}
	s.documentChanges = append(s.documentChanges, documentChange{d.value.Number, ref})
	if len(s.documentChanges) > 2*len(s.documents)+100 {
		s.documentChanges = slices.DeleteFunc(s.documentChanges, func(c documentChange) bool { return s.documents[c.ref].value.Number != c.number })
	}
	s.wakeAll()
}

// dropDocument forgets a document that is gone: etcd went back to before there was one.
func (c *carried) dropDocument(key string) {
	for ref := range c.documents {
		if documentKey(ref) == key {
			delete(c.documents, ref)
			c.documentChanges = slices.DeleteFunc(c.documentChanges, func(d documentChange) bool { return d.ref == ref })
			return
		}
	}
}

func (c *carried) sortChanges() {
	slices.SortFunc(c.documentChanges, func(a, b documentChange) int {
		return cmp.Or(cmp.Compare(a.number, b.number), a.ref.Compare(b.ref))
	})
}

// documentsSince lists the documents that changed since a configuration number, in the order of their changes, and the
// present ones of those that were stated. The number that it returns is that of the last change listed, or the deployment's
// if all are.
func (s *state) documentsSince(number int64, stated []allocation.Document) (list []allocation.Document, reached int64, more bool) {
	for _, theirs := range stated {
		if d := s.documents[theirs.Ref()]; d != nil {
			list = append(list, d.value.Document)
		}
	}
	i, _ := slices.BinarySearchFunc(s.documentChanges, number+1, func(c documentChange, n int64) int { return cmp.Compare(c.number, n) })
	since, reached := 0, number
	for _, c := range s.documentChanges[i:] {
		d := s.documents[c.ref].value
		if d.Number != c.number {
			continue // it was changed again: that change comes later
		}
		// Several have one number where they were entered together: all of them, or the rest would never be told.
		if since >= allocation.MaxDocumentsPerAnswer && c.number != reached {
			return list, reached, true
		}
		list, reached, since = append(list, d.Document), c.number, since+1
	}
	return list, s.deployment.value.Config, false
}

// believes says whether a document that a region states, and that ours does not answer, is taken over: what etcd may have
// lost, being made under a history before this one, or what regions make themselves. A region's word makes nothing else, or
// the key of one region would open all of them.
func (s *state) believes(region string, d allocation.Document) bool {
	return d.Check() == nil && (allocation.MadeInRegion(region, d) || d.Number > 0 && d.Made.Number < s.descent().History.Number)
}

// takeDocuments enters what a call states and etcd does not have.
func (s *Service) takeDocuments(ctx context.Context, from string, call allocation.SyncCall) error {
	for part := range slices.Chunk(call.Documents, maxRestatedAct) {
		if !s.lacksAny(call.Region, part) {
			continue
		}
		err := s.inTurn(ctx, func() (Change, error) { return s.takeOver(nodeOf(call, from), call.Region, part) })
		if err != nil {
			return fmt.Errorf("take over what region %s holds of the configuration: %w", call.Region, err)
		}
	}
	return nil
}

func (s *state) lacks(region string, theirs allocation.Document) bool {
	ours := s.documents[theirs.Ref()]
	return (ours == nil || theirs.Version > ours.value.Version || theirs.Final && !ours.value.Final) && s.believes(region, theirs)
}

func (s *Service) lacksAny(region string, part []allocation.Document) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return slices.ContainsFunc(part, func(d allocation.Document) bool { return s.state.lacks(region, d) })
}

// takeOver is the change that enters some documents of a region. What is later stays: see allocation.Document.Replaces.
func (s *Service) takeOver(who actor, region string, part []allocation.Document) (Change, error) {
	var change Change
	config := s.state.deployment.value.Config
	for _, theirs := range allocation.NewestDocuments(part) {
		if !s.state.lacks(region, theirs) {
			continue
		}
		ours := s.state.documents[theirs.Ref()]
		if ours != nil && !theirs.Replaces(ours.value.Document) {
			continue
		}
		config++
		next := ConfigDocument{Format: documentFormat, Document: theirs, Changed: s.now().UTC(), By: who.name}
		next.Number, next.Made = config, s.state.descent().History
		if ours != nil {
			next.Version = max(next.Version, ours.value.Version)
		}
		key := documentKey(theirs.Ref())
		change.Reads = append(change.Reads, ours.known(key))
		change.Puts = append(change.Puts, put(key, next), s.auditLine(who, theirs.Kind+".restated", theirs.Name, nil, audited(next.Document)))
	}
	if len(change.Puts) == 0 {
		return Change{}, nil
	}
	_, deployment, raised, err := s.state.raise(func(d *Deployment) { d.Config = config })
	if err != nil {
		return Change{}, err
	}
	change.Reads, change.Puts = append(change.Reads, deployment), append(change.Puts, raised)
	return change, nil
}

// audited is a document as the audit has it: without what a key is compared with.
func audited(d allocation.Document) allocation.Document {
	if k, err := d.Key(); err == nil {
		d.Body = encode(k.Public())
	}
	return d
}

// changeDocument writes the next version of a document, which edit makes from the present one (nil: there is none). The
// caller holds the turn: it is for the decide of inTurn. What edit leaves the same is not written.
func (s *Service) changeDocument(who actor, act string, ref allocation.DocumentRef, edit func(cur *ConfigDocument) (body any, final bool, err error)) (Change, allocation.Document, error) {
	if s.state.deployment == nil || s.state.standing == nil {
		return Change{}, allocation.Document{}, errStarting
	}
	cur := s.state.documents[ref]
	var known *ConfigDocument
	next := ConfigDocument{Format: documentFormat, Changed: s.now().UTC(), By: who.name}
	next.Kind, next.Name, next.Made = ref.Kind, ref.Name, s.state.descent().History
	next.Number, next.Version = s.state.deployment.value.Config+1, s.state.versionAfter(0, allocation.History{})
	if cur == nil && len(s.state.documents) >= maxDocuments {
		return Change{}, allocation.Document{}, refused("documents that are over are remembered: reuse keys, and block by fewer labels", "there are %d documents already", maxDocuments)
	}
	var old any
	if cur != nil {
		known, old = &cur.value, audited(cur.value.Document)
		next.Version = s.state.versionAfter(cur.value.Version, cur.value.Made)
	}
	body, final, err := edit(known)
	if err != nil {
		return Change{}, allocation.Document{}, err
	}
	next.Body, next.Final = encode(body), final
	if err := next.Check(); err != nil {
		return Change{}, allocation.Document{}, invalid("body", err.Error(), "make it smaller")
	}
	_, deployment, raised, err := s.state.raise(func(d *Deployment) { d.Config = next.Number })
	if err != nil {
		return Change{}, allocation.Document{}, err
	}
	key := documentKey(ref)
	return Change{
		Reads: []Item{deployment, cur.known(key)},
		Puts:  []Item{raised, put(key, next), s.auditLine(who, act, ref.Name, old, audited(next.Document))},
	}, next.Document, nil
}
