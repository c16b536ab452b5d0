package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// Apply stores an answer of the coordinator, all of it in one commit. It may come late, repeated or out of order: what is
// older than what is stored changes nothing (invariant 8).
//
// An answer of an older history, or of a former incarnation, is ignored whole. One that contradicts what is stored (another
// deployment, another current incarnation, a history of the same number with another stamp) fails with
// allocation.ErrContradicted.
func (s *Store) Apply(ctx context.Context, rw regional.Writer, answer allocation.SyncAnswer, observedAt int64) error {
	mode := switchShared
	if answer.Refusal != "" {
		mode = switchExclusive // once the refusal is stored, no batch that began before it commits
	}
	err := s.write(ctx, rw, mode, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		a := &application{t: t, writer: rw.(*writer), answer: answer, observedAt: observedAt}
		ignored, err := a.judge(ctx)
		if err != nil || ignored {
			return nil, err
		}
		b := &pgx.Batch{}
		switch {
		case a.heeded != a.life.history && !a.blank():
			b.Queue(heedHistory, a.heeded.Number, a.heeded.Stamp)
			b.Queue(forgetNumbers)
			b.Queue(forgetBases)
			return b, nil
		case a.life.lost || a.life.stopped == allocation.Sealed:
			return nil, nil
		case answer.Refusal != "":
			return a.refused(ctx, b)
		}
		if err := a.applyShares(ctx); err != nil {
			return nil, err
		}
		if err := a.lockOwner(ctx); err != nil {
			return nil, err
		}
		return b, a.queueRest(ctx, b)
	})
	if err != nil {
		return fmt.Errorf("apply an answer: %w", err)
	}
	return nil
}

// application is one answer on its way into the database.
type application struct {
	t          *transaction
	writer     *writer
	answer     allocation.SyncAnswer
	observedAt int64

	life    life
	heeded  allocation.History    // the owner's, once the answer was heard
	changes int64                 // the owner's change number, raised by one if nodes have anything to read anew
	opened  []allocation.ShareRef // shares that are new
}

// life is what of the owner's row an answer must fit.
type life struct {
	deployment  string
	incarnation string
	history     allocation.History
	observedAt  int64

	stopped allocation.Reason
	lost    bool
	home    allocation.Home // of the database
}

// blank says that the owner has heard nothing yet, so that nothing it has could be of another history.
func (a *application) blank() bool {
	return a.life.incarnation == "" && a.life.history == (allocation.History{})
}

// readLife reads whom the owner belongs to, and says whether the answer's incarnation is a former one.
func (a *application) readLife(ctx context.Context) (former bool, err error) {
	l := &a.life
	q := &pgx.Batch{}
	q.Queue(selectOwnerLife, a.answer.Incarnation).QueryRow(func(row pgx.Row) error {
		return row.Scan(&l.deployment, &l.incarnation, &l.history.Number, &l.history.Stamp, &l.observedAt, &l.stopped, &l.lost, &former)
	})
	q.Queue(selectHome).QueryRow(func(row pgx.Row) error { return row.Scan(&l.home.System, &l.home.Database, &l.home.Timeline) })
	if err := a.t.run(ctx, q); err != nil {
		return false, fmt.Errorf("read the owner's row: %w", err)
	}
	return former, nil
}

// judge reads whom the owner belongs to, and says whether the answer is to be ignored.
func (a *application) judge(ctx context.Context) (ignored bool, err error) {
	former, err := a.readLife(ctx)
	if err != nil {
		return false, err
	}
	l, answer, asked := a.life, a.answer, a.writer.asked
	a.heeded, _ = l.history.Heed(answer.History)
	switch {
	case l.deployment != "" && answer.Deployment != l.deployment:
		return false, fmt.Errorf("it is of deployment %q, the owner belongs to %q: %w", answer.Deployment, l.deployment, allocation.ErrContradicted)
	case former || answer.History.Number < l.history.Number:
		return true, nil
	case asked != nil && asked.incarnation != "" && asked.incarnation != l.incarnation:
		return true, nil // the owner has started over since
	case answer.History.Number == l.history.Number && answer.History.Stamp != l.history.Stamp:
		return false, fmt.Errorf("history %d is stored as %s, it was sent as %s: %w",
			l.history.Number, l.history.Stamp, answer.History.Stamp, allocation.ErrContradicted)
	case answer.Refusal != "", a.heeded != l.history && !a.blank():
		return false, nil
	case answer.Incarnation != l.incarnation && l.incarnation != "":
		return false, fmt.Errorf("it is for incarnation %q, the owner is %q: %w", answer.Incarnation, l.incarnation, allocation.ErrContradicted)
	case answer.Incarnation != l.incarnation && asked != nil && asked.home != l.home:
		// The coordinator recorded the home that the call named; this is another database.
		return false, fmt.Errorf("the incarnation was given to the database %+v, this is %+v: %w", asked.home, l.home, allocation.ErrContradicted)
	}
	return false, nil
}

// refused is what a refusal leaves to be written, if anything.
func (a *application) refused(ctx context.Context, b *pgx.Batch) (*pgx.Batch, error) {
	answer := a.answer
	overtaken, err := a.holdsAll(ctx, answer.Contradicted)
	switch {
	case err != nil:
		return nil, err
	case overtaken:
		b.Queue(recallWriters, writersOf(answer.Contradicted))
	case a.life.incarnation != "" && (len(answer.Contradicted) > 0 || answer.Incarnation != a.life.incarnation):
		b.Queue(loseOwner, string(allocation.HistoryLost), answer.Detail)
	default:
		b.Queue(stopOwner, string(regional.StopReason(answer.Refusal)), answer.Detail)
	}
	return b, nil
}

func writersOf(marks []allocation.Mark) []string {
	writers := make([]string, len(marks))
	for i, m := range marks {
		writers[i] = m.Writer
	}
	return writers
}

// holdsAll says whether a refusal rests on marks only, and the database still holds every one of them: the call was
// overtaken by a later one of another node, which told the coordinator newer marks; or etcd went back, and knows writers again
// that have ended. Nothing is lost then.
func (a *application) holdsAll(ctx context.Context, marks []allocation.Mark) (bool, error) {
	if len(marks) == 0 {
		return false, nil
	}
	now := map[string]allocation.Mark{}
	q := &pgx.Batch{}
	q.Queue(selectMarksOf, writersOf(marks)).Query(func(rows pgx.Rows) error {
		var m allocation.Mark
		_, err := pgx.ForEachRow(rows, []any{&m.Writer, &m.Count, &m.Value}, func() error {
			now[m.Writer] = m
			return nil
		})
		return err
	})
	if err := a.t.run(ctx, q); err != nil {
		return false, fmt.Errorf("read the marks that are in doubt: %w", err)
	}
	for _, m := range marks {
		if !m.Holds(now[m.Writer]) {
			return false, nil
		}
	}
	return true, nil
}

// lockOwner locks the owner's row, after shares and usage. What the answer was judged by must still hold.
func (a *application) lockOwner(ctx context.Context) error {
	var now life
	q := &pgx.Batch{}
	q.Queue(lockOwner).QueryRow(func(row pgx.Row) error {
		return row.Scan(&now.deployment, &now.incarnation, &now.history.Number, &now.history.Stamp, &now.observedAt, &a.changes)
	})
	if err := a.t.run(ctx, q); err != nil {
		return fmt.Errorf("lock the owner's row: %w", err)
	}
	if now.deployment != a.life.deployment || now.incarnation != a.life.incarnation || now.history != a.life.history {
		return fmt.Errorf("%w: another answer changed the owner's row", regional.ErrRaced)
	}
	return nil
}

// queueRest writes all that stands under the owner's row.
func (a *application) queueRest(ctx context.Context, b *pgx.Batch) error {
	next := a.changes + 1
	changed, err := a.writeBudgets(ctx, next)
	if err != nil {
		return err
	}
	documents, err := a.writeDocuments(ctx, next)
	if err != nil {
		return err
	}
	closed, err := a.closeTerms(ctx, next)
	if err != nil {
		return err
	}
	if len(a.opened) > 0 {
		budgets, terms := refColumns(a.opened)
		b.Queue(changeShares, budgets, terms, next)
	}
	if changed || documents || closed || len(a.opened) > 0 {
		a.changes = next
	}
	elsewhere, err := json.Marshal(a.answer.Elsewhere)
	if err != nil {
		return fmt.Errorf("encode what is elsewhere: %w", err)
	}
	if len(a.answer.Elsewhere) == 0 {
		elsewhere = []byte("[]")
	}
	answer := a.answer
	b.Queue(updateOwner, answer.Deployment, answer.Incarnation, answer.History.Number, answer.History.Stamp, a.changes,
		answer.Config, answer.Revision, a.observedAt, string(elsewhere), textsOf(answer.Regions), textsOf(answer.Removed), answer.DocumentsThrough)
	if answer.Incarnation != "" && a.life.incarnation == "" {
		b.Queue(insertIncarnation, answer.Incarnation)
	}
	a.queueAcknowledged(b)
	if len(answer.EndedAcknowledged) > 0 {
		b.Queue(deleteWriters, answer.EndedAcknowledged)
	}
	return nil
}

// writeBudgets says whether any was new.
func (a *application) writeBudgets(ctx context.Context, change int64) (bool, error) {
	if len(a.answer.Budgets) == 0 {
		return false, nil
	}
	newest := map[string]allocation.ConfiguredBudget{}
	for _, c := range a.answer.Budgets {
		if had, ok := newest[c.Budget.Name]; !ok || c.Version > had.Version || c.Version == had.Version && c.Number > had.Number {
			newest[c.Budget.Name] = c
		}
	}
	var names, declarations []string
	var versions, numbers []int64
	var deleted []bool
	for name, c := range newest {
		text, err := json.Marshal(c.Budget)
		if err != nil {
			return false, fmt.Errorf("encode budget %s: %w", name, err)
		}
		names, declarations = append(names, name), append(declarations, string(text))
		versions, numbers, deleted = append(versions, c.Version), append(numbers, c.Number), append(deleted, c.Deleted)
	}
	tag, err := a.t.conn.Exec(ctx, upsertBudgets, names, versions, numbers, deleted, declarations, change)
	if err != nil {
		return false, fmt.Errorf("write budgets: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// closeTerms marks shares of closed terms, which Tidy removes later. It says whether any was new.
func (a *application) closeTerms(ctx context.Context, change int64) (bool, error) {
	if len(a.answer.Closed) == 0 {
		return false, nil
	}
	budgets, terms := refColumns(a.answer.Closed)
	tag, err := a.t.conn.Exec(ctx, closeShares, budgets, terms, change)
	if err != nil {
		return false, fmt.Errorf("mark closed terms: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// queueAcknowledged records which statements the coordinator has, shards locked in order as Statements does.
func (a *application) queueAcknowledged(b *pgx.Batch) {
	var shards []int16
	var numbers []int64
	var whole []bool
	for _, ack := range a.answer.Acknowledged {
		shards = append(shards, int16(ack.Shard))
		numbers, whole = append(numbers, ack.Number), append(whole, ack.Whole)
	}
	if len(shards) == 0 {
		return
	}
	b.Queue(lockShards, shards)
	b.Queue(acknowledge, shards, numbers, whole)
	b.Queue(dropAcknowledged, shards)
}

func refColumns(refs []allocation.ShareRef) (budgets []string, terms []int64) {
	for _, r := range refs {
		budgets, terms = append(budgets, r.Budget), append(terms, int64(r.Term))
	}
	return budgets, terms
}

// textsOf is the list as a parameter; never null.
func textsOf(list []string) []string { return append([]string{}, list...) }
