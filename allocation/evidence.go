package allocation

import "fmt"

// Stale says that a budget admits on evidence that is older than its max_evidence_age, as it declares with
// on_stale_evidence: admit. What bounds it is the share: the region holds AtMost in this period, whatever happens
// elsewhere, and has terms until Covered; from then on it refuses.
type Stale struct {
	MaxAge  Duration `json:"max_age"`
	AtMost  int64    `json:"at_most"` // that this region can spend in the period in all
	Covered Instant  `json:"covered"` // the end of the terms that it holds
}

// old says whether the coordinator's word is older than a budget allows.
func (l *Locked) old(b *Budget) bool { return l.olderThan(b.MaxEvidenceAge) }

func (l *Locked) olderThan(most Duration) bool {
	longest := int64(most) * 1_000_000
	return longest != 0 && (l.ObservedAt == 0 || l.Now-l.ObservedAt > longest)
}

// stale is what bounds a budget that admits on old evidence; nil: the evidence is not too old.
func (l *Locked) stale(line Line, u *Usage) *Stale {
	if line.Budget.OnStaleEvidence != OnStaleAdmit || !l.old(line.Budget) {
		return nil
	}
	return &Stale{
		MaxAge: line.Budget.MaxEvidenceAge, AtMost: u.Granted - u.Returned,
		Covered: l.Catalogue.CoveredUntil(line.UsageKey.Budget, l.now()),
	}
}

// refusesOld says whether a budget takes nothing new on the evidence that there is, for being too old.
func (l *Locked) refusesOld(name string) bool {
	b, known := l.Catalogue.budgets.get(name)
	return known && b.Budget.OnStaleEvidence != OnStaleAdmit && l.old(&b.Budget)
}

// keyTooOld says why the caller's key is not to be taken on the evidence that there is: a region that is cut off for longer than
// the key allows may have missed its revocation. Empty: it is.
func (l *Locked) keyTooOld(r Request) string {
	k := l.Catalogue.policy.keys[r.Presented.Fingerprint] // whether it is this key was asked before
	if k == nil || !l.olderThan(k.MaxEvidenceAge) {
		return ""
	}
	return fmt.Sprintf("key %s is taken on evidence of at most %s", k.Name, k.MaxEvidenceAge)
}
