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
func (s *Service) ensureDeployment(ctx context.Context, id string) error {
	var made Deployment
	secret := s.newToken(RoleAdmin, "", firstAdmin)
	goesOn := s.config.GoOn
	if err := goesOn.fits(id, "this coordinator remembers"); err != nil {
		return err
	}
	err := s.actFreely(ctx, func() (Change, error) {
		if d := s.state.deployment; d != nil {
			return s.ensureStanding(d), goesOn.fits(d.value.ID, "etcd holds")
		}
		made = Deployment{
			Format: documentFormat, ID: cmp.Or(id, goesOn.id(), s.random.hex(8)), Made: s.now().UTC(),
			History: allocation.History{Number: 1, Stamp: s.random.hex(8)}, Config: 0, Members: 1,
		}
		standing := s.firstStanding(goesOn, &made)
		token := TokenDocument{Format: documentFormat, Name: firstAdmin, Role: RoleAdmin, Hash: hashToken(secret), Made: made.Made, By: background.name}
		change := Change{
			Reads: []Item{{Key: deploymentKey}, {Key: historyKey}},
			Puts:  []Item{put(deploymentKey, made), put(historyKey, standing)},
		}
		if len(s.state.tokens) == 0 {
			change.Reads = append(change.Reads, Item{Key: tokenKey(firstAdmin)})
			change.Puts = append(change.Puts, put(tokenKey(firstAdmin), token))
		}
		change.Puts = append(change.Puts, s.auditLine(background, "deployment.make", made.ID, nil, made))
		return change, nil
	})
	if errors.Is(err, ErrUnknownOutcome) {
		// It may be ours: read it back instead of trying blindly.
		err = s.refresh(ctx)
	}
	if err != nil {
		return fmt.Errorf("make the deployment: %w", err)
	}
	s.state.mu.Lock()
	mine := s.state.deployment != nil && s.state.deployment.value.ID == made.ID
	first := s.state.tokens[firstAdmin]
	s.state.mu.Unlock()
	if mine && first != nil && first.value.Hash == hashToken(secret) && s.config.OnFirstAdminToken != nil {
		s.config.OnFirstAdminToken(secret)
	}
	return nil
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
