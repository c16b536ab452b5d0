package mutants

import (
	"context"
	"encoding/json"
	"slices"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
)

// keyMutants are those of callers' keys and of blocks.
func keyMutants() []Mutant {
	return []Mutant{
		inFleet("revocation-loses-to-budget", "a node does not hear that a key was revoked, or a tenant blocked, while the budget has room", keyed, deaf, 11),
		inFleet("fallback-key", "a request whose key is not valid is taken for a gateway's", keyed, doors(fallbackKey), 11),
		inFleet("replay-under-revoked-key", "a known id is replayed without a look at its key", keyed, doors(replayUnseen), 11),
		inFleet("stale-key-in-strict", "a key is taken on evidence of any age", keyed, ownerSeams(staleKeyTaken), 11),
		inFleet("restore-forgets-ends", "a region does not state the documents that an etcd which went back may have lost", keyedRestore, wireSeams(stateNoDocuments), 8),
	}
}

// staleKeyTaken lets every key be taken on evidence of any age.
func staleKeyTaken() ownerSeam {
	return ownerSeam{loaded: func(l *regional.Loaded) {
		l.Documents = slices.Clone(l.Documents) // the database keeps its own
		for i := range l.Documents {
			k, err := l.Documents[i].Key()
			if err != nil || k.MaxEvidenceAge == 0 {
				continue
			}
			k.MaxEvidenceAge = 0
			if body, err := json.Marshal(k); err == nil {
				l.Documents[i].Body = body
			}
		}
	}}
}

// deafOwner never tells its node of what was ended, nor of a block.
type deafOwner struct{ regional.Owner }

func deaf() fleet.Seams {
	return fleet.Seams{Owner: func(_ string, o regional.Owner) regional.Owner { return deafOwner{o} }}
}

func hear(l *regional.Loaded) {
	l.Documents = slices.DeleteFunc(slices.Clone(l.Documents), func(d allocation.Document) bool { return d.Final || d.Kind == allocation.KindBlock })
}

func (o deafOwner) Begin(ctx context.Context, w regional.Writer, want regional.Want) (regional.Batch, error) {
	b, err := o.Owner.Begin(ctx, w, want)
	if err == nil {
		hear(&b.Seen().Loaded)
	}
	return b, err
}

func (o deafOwner) Load(ctx context.Context, after int64) (regional.Loaded, error) {
	l, err := o.Owner.Load(ctx, after)
	hear(&l)
	return l, err
}

func (o deafOwner) Peek(ctx context.Context, want regional.Want) (regional.Seen, error) {
	s, err := o.Owner.Peek(ctx, want)
	hear(&s.Loaded)
	return s, err
}

// doors makes a door that all nodes of a run share.
func doors(make func() func([]allocation.Request) []allocation.Request) func() fleet.Seams {
	return func() fleet.Seams {
		door := make()
		return fleet.Seams{Door: func(_ string, requests []allocation.Request) []allocation.Request {
			return door(slices.Clone(requests))
		}}
	}
}

// fallbackKey takes every caller with a key for a gateway, whatever the key is worth.
func fallbackKey() func([]allocation.Request) []allocation.Request {
	return func(requests []allocation.Request) []allocation.Request {
		for i := range requests {
			requests[i].Presented = allocation.Presented{}
		}
		return requests
	}
}

// replayUnseen does so for ids that came before.
func replayUnseen() func([]allocation.Request) []allocation.Request {
	came := map[allocation.IDKey]bool{}
	return func(requests []allocation.Request) []allocation.Request {
		for i := range requests {
			if came[requests[i].Key] {
				requests[i].Presented = allocation.Presented{}
			}
			came[requests[i].Key] = true
		}
		return requests
	}
}

// stateNoDocuments keeps documents out of the calls, and takes them for told.
func stateNoDocuments() syncFunc {
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		kept := call.Documents
		call.Documents = nil
		answer, err := c.Sync(ctx, call)
		if err == nil && answer.History == call.History {
			answer.Documents = append(answer.Documents, kept...)
		}
		return answer, err
	}
}
