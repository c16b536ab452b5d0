package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"tranche/allocation"
)

// firstAdmin is the name of the token that is made with the deployment.
const firstAdmin = "first"

// ensureDeployment makes the deployment's document and the first admin token, in one transaction that finds neither. Of
// several replicas that start at once, one wins; only that one knows the token, and says it once. Where etcd was replaced
// by an empty one, a coordinator that remembers the deployment makes it with its old id: the owners belong to that one.
//
// While etcd does not answer, or an answer was lost, it tries again: with the same token, so that a write of before which
// arrives late is known as its own. What no waiting mends ends the process.
func (s *Service) ensureDeployment(ctx context.Context, id string) error {
	m := &deploymentMaker{Service: s, id: id, secret: s.newToken(RoleAdmin, "", firstAdmin)}
	if err := s.config.GoOn.fits(id, "this coordinator remembers"); err != nil {
		return err
	}
	for {
		err := s.actFreely(ctx, m.change)
		switch {
		case err == nil:
			m.tellToken()
			return nil
		case ctx.Err() != nil || !passes(err):
			return fmt.Errorf("make the deployment: %w", err)
		}
		s.log.Warn("it is not known yet that the deployment stands in etcd", "error", err)
		s.runtime.Sleep(ctx, recallPause)
	}
}

// passes says whether it is worth another try: the store did not answer, an answer was lost, or others were faster.
func passes(err error) bool {
	for _, e := range []error{ErrUnavailable, ErrUnknownOutcome, ErrConflict, errNotShown, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// deploymentMaker is one attempt to make the deployment, however often it is repeated.
type deploymentMaker struct {
	*Service
	id, secret string
	made       Deployment
	standing   StandingDocument
}

func (m *deploymentMaker) change() (Change, error) {
	goesOn := m.config.GoOn
	if d := m.state.deployment; d != nil {
		return m.ensureStanding(d), goesOn.fits(d.value.ID, "etcd holds")
	}
	if m.made.ID == "" {
		m.made = Deployment{
			Format: documentFormat, ID: cmp.Or(m.id, goesOn.id(), m.random.hex(8)), Made: m.now().UTC(),
			History: allocation.History{Number: 1, Stamp: m.random.hex(8)}, Config: 0, Members: 1,
		}
		m.standing = m.firstStanding(goesOn, &m.made)
	}
	token := TokenDocument{Format: documentFormat, Name: firstAdmin, Role: RoleAdmin, Hash: hashToken(m.secret), Made: m.made.Made, By: background.name}
	change := Change{
		Reads: []Item{{Key: deploymentKey}, {Key: historyKey}},
		Puts:  []Item{put(deploymentKey, m.made), put(historyKey, m.standing)},
	}
	if len(m.state.tokens) == 0 {
		change.Reads = append(change.Reads, Item{Key: tokenKey(firstAdmin)})
		change.Puts = append(change.Puts, put(tokenKey(firstAdmin), token))
	}
	change.Puts = append(change.Puts, m.auditLine(background, "deployment.make", m.made.ID, nil, m.made))
	return change, nil
}

// tellToken says the first admin token, if it is the one that stands in etcd.
func (m *deploymentMaker) tellToken() {
	m.state.mu.Lock()
	first := m.state.tokens[firstAdmin]
	m.state.mu.Unlock()
	if first != nil && first.value.Hash == hashToken(m.secret) && m.config.OnFirstAdminToken != nil {
		m.config.OnFirstAdminToken(m.secret)
	}
}

// ensureStanding makes the standing of a deployment that is older than it.
func (s *Service) ensureStanding(d *doc[Deployment]) Change {
	if s.state.standing != nil || s.state.strange[historyKey] != "" {
		return Change{}
	}
	return Change{Reads: []Item{d.item, {Key: historyKey}}, Puts: []Item{put(historyKey, standingOf(d.value.History))}}
}

// raise returns the change of the deployment's document by edit, for an act that raises one of its numbers.
func (s *state) raise(edit func(*Deployment)) (Deployment, Item, Item, error) {
	if s.deployment == nil {
		return Deployment{}, Item{}, Item{}, errStarting
	}
	next := s.deployment.value
	edit(&next)
	return next, s.deployment.item, put(deploymentKey, next), nil
}

var errStarting = problem(503, CodeUnavailable, "the coordinator is starting", "try again")
