package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tranche/allocation"
)

// maxBlocks bounds the blocks that are in force at once.
const maxBlocks = 1000

// BlockRequest blocks what has all of the labels, or is of the key.
type BlockRequest struct {
	Match       allocation.Labels   `json:"match,omitempty"`
	Fingerprint string              `json:"fingerprint,omitempty"`
	For         allocation.Duration `json:"for"`
	Reason      string              `json:"reason"`
	By          string              `json:"by,omitempty"` // beside the token's name
}

// BlockAnswer is a block as it is listed.
type BlockAnswer struct {
	ID string `json:"id"`
	allocation.Block
	State  string `json:"state"` // in force, over, lifted
	Number int64  `json:"number"`
}

// BlocksList is blocks, the newest first.
type BlocksList struct {
	Blocks []BlockAnswer `json:"blocks"`
}

func (s *Service) answerBlock(d allocation.Document) BlockAnswer {
	b, err := d.Block()
	a := BlockAnswer{ID: d.Name, Block: b, Number: d.Number, State: "in force"}
	switch {
	case err != nil:
		a.State = "unknown"
	case b.Lifted != nil:
		a.State = "lifted"
	case s.instant() >= b.Until:
		a.State = "over"
	}
	return a
}

// block puts a block into force everywhere.
func (s *Service) block(ctx context.Context, who actor, q BlockRequest) (BlockAnswer, error) {
	now := s.instant()
	b := allocation.Block{Match: q.Match, Fingerprint: q.Fingerprint, From: now, Reason: q.Reason, By: named(q.By, who)}
	if q.For != 0 {
		b.Until = now + allocation.Instant(q.For)
	}
	if err := b.Validate(); err != nil {
		return BlockAnswer{}, err
	}
	who.reason = q.Reason
	var answer BlockAnswer
	err := s.inTurn(ctx, func() (Change, error) {
		if n := s.state.blocksInForce(s.instant()); n >= maxBlocks {
			return Change{}, refused("block by fewer labels, or lift some", "%d blocks are in force already", n)
		}
		ref := allocation.DocumentRef{Kind: allocation.KindBlock, Name: "b-" + s.random.hex(6)}
		change, next, err := s.changeDocument(who, "block", ref, func(*ConfigDocument) (any, bool, error) { return b, false, nil })
		answer = s.answerBlock(next)
		return change, err
	})
	return answer, err
}

// named is who does an act: the person that the request names, through the token that it comes with.
func named(by string, who actor) string {
	if by == "" || by == who.name {
		return who.name
	}
	return fmt.Sprintf("%s (token %s)", by, who.name)
}

func (s *state) blocksInForce(now allocation.Instant) (n int) {
	for ref, d := range s.documents {
		if ref.Kind == allocation.KindBlock && !d.value.Final {
			if b, err := d.value.Block(); err == nil && now < b.Until {
				n++
			}
		}
	}
	return n
}

// unblock ends a block before its time.
func (s *Service) unblock(ctx context.Context, who actor, id, by, reason string) (BlockAnswer, error) {
	if err := checkWhy(reason); err != nil {
		return BlockAnswer{}, err
	}
	if err := checkReasonLength("by", by); err != nil {
		return BlockAnswer{}, err
	}
	who.reason = reason
	var answer BlockAnswer
	err := s.inTurn(ctx, func() (Change, error) {
		ref := allocation.DocumentRef{Kind: allocation.KindBlock, Name: id}
		d := s.state.documents[ref]
		if d == nil {
			return Change{}, notFound("block", id)
		}
		if d.value.Final {
			answer = s.answerBlock(d.value.Document)
			return Change{}, nil
		}
		change, next, err := s.changeDocument(who, "unblock", ref, func(cur *ConfigDocument) (any, bool, error) {
			b, err := cur.Block()
			b.Lifted = &allocation.Lifted{At: s.instant(), By: named(by, who), Reason: reason}
			return b, true, err
		})
		answer = s.answerBlock(next)
		return change, err
	})
	return answer, err
}

// listBlocks lists those in force, or with all also those that are over.
func (s *Service) listBlocks(all bool) BlocksList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := BlocksList{Blocks: []BlockAnswer{}}
	for _, ref := range s.state.sortedDocuments(allocation.KindBlock) {
		if a := s.answerBlock(s.state.documents[ref].value.Document); all || a.State == "in force" {
			list.Blocks = append(list.Blocks, a)
		}
	}
	slices.SortStableFunc(list.Blocks, func(a, b BlockAnswer) int { return cmp.Compare(b.From, a.From) })
	return list
}
