package coordinator

import (
	"context"
	"encoding/json"
	"time"

	"tranche/allocation"
)

// Settle does the background work until there is none left, as the leader does between two ticks.
func (s *Service) Settle(ctx context.Context) error {
	for range 50 {
		if err := s.refresh(ctx); err != nil {
			return err
		}
		if err := s.round(ctx); err != nil {
			return err
		}
		s.state.mu.Lock()
		now, due := s.instant(), len(s.state.behind)
		for _, d := range s.state.budgets {
			if p, ok := s.nextTerm(d.value, now); ok && !s.state.descent().Frozen(p.Start()) {
				due++
			}
		}
		s.state.mu.Unlock()
		if due == 0 || s.trustClock() != clockGood {
			return nil
		}
	}
	return ErrConflict
}

// Refresh makes the picture as new as the store.
func (s *Service) Refresh(ctx context.Context) error { return s.refresh(ctx) }

// PutDocument makes the next version of a carried document.
func (s *Service) PutDocument(ctx context.Context, ref allocation.DocumentRef, body any, final bool) error {
	return s.inTurn(ctx, func() (Change, error) {
		change, _, err := s.changeDocument(background, ref.Kind+".change", ref, func(*ConfigDocument) (any, bool, error) { return body, final, nil })
		return change, err
	})
}

// Document is a carried document in the picture.
func (s *Service) Document(ref allocation.DocumentRef) (ConfigDocument, bool) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if d := s.state.documents[ref]; d != nil {
		return d.value, true
	}
	return ConfigDocument{}, false
}

// Persist writes what is only known, as the tick does.
func (s *Service) Persist(ctx context.Context) error { return s.persist(ctx) }

// OpenTerms is one round of opening.
func (s *Service) OpenTerms(ctx context.Context) (int, error) { return s.openTerms(ctx) }

// CloseTerms is one round of closing.
func (s *Service) CloseTerms(ctx context.Context) (int, error) { return s.closeTerms(ctx) }

// Sweep removes what is kept for a while only.
func (s *Service) Sweep(ctx context.Context) error { return s.sweep(ctx) }

// StatementValue is the document of a shard with these accounts.
func StatementValue(shares []allocation.ShareStatement) []byte {
	sh := &shard{incarnation: "x", number: 1, shares: map[allocation.ShareRef]allocation.ShareStatement{}}
	for _, st := range shares {
		sh.shares[allocation.ShareRef{Budget: st.Budget, Term: st.Term}] = st
	}
	return statementValue("us-east", 1, sh)
}

// Statement reads such a document.
func Statement(value []byte) (d StatementDocument) {
	if err := json.Unmarshal(value, &d); err != nil {
		panic(err)
	}
	return d
}

// Ledgers are all ledgers in the picture.
func (s *Service) Ledgers() []allocation.Ledger {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	var out []allocation.Ledger
	for _, l := range s.state.ledgers {
		out = append(out, l.value)
	}
	return out
}

// Authenticate says which role a token has; empty: none.
func (s *Service) Authenticate(token string) string {
	d, _ := s.state.authenticate(token)
	return d.Role
}

// HearRefusals takes a node's counts.
func (s *Service) HearRefusals(region string, q RefusalReport) error {
	return s.hearRefusals(region, q)
}

// Allot answers what regions asked for, as the part that runs beside does.
func (s *Service) Allot(ctx context.Context) error { return s.allotAsked(ctx) }

// Notice is one look for events, whenever the last one was.
func (s *Service) Notice(ctx context.Context) error {
	s.noticed = time.Time{}
	return s.noticeEvents(ctx)
}

// PeriodsUntil counts the periods that run or begin before an instant.
func PeriodsUntil(w allocation.Window, now, until allocation.Instant) int64 {
	return periodsUntil(w, now, until)
}

// SendNext is one attempt of the webhook.
func (s *Service) SendNext(ctx context.Context) (bool, error) { return s.sendNext(ctx) }
