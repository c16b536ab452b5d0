package regional

import "tranche/allocation"

// maxUsed bounds the keys that wait to be told of; others are told of when they are used the next time.
const maxUsed = 10_000

// countUsed notes which keys were admitted with. A replay shows the key of the first answer.
func (r *refusals) countUsed(decisions []allocation.Decision) {
	for i := range decisions {
		d := &decisions[i]
		if d.Evidence.Fingerprint == "" || !d.Admitted() || !allocation.IsKeyCredential(d.Key.Credential) {
			continue
		}
		r.mu.Lock()
		r.use(d.Evidence.Fingerprint, d.At/1_000_000)
		r.mu.Unlock()
	}
}

// use enters a use; the lock is held.
func (r *refusals) use(fingerprint string, at int64) {
	had, known := r.used[fingerprint]
	if !known && len(r.used) >= maxUsed {
		return
	}
	if r.used == nil {
		r.used = map[string]int64{}
	}
	r.used[fingerprint] = max(had, at)
}

// takeUsed takes the uses for one report.
func (r *refusals) takeUsed() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.used) <= allocation.MaxUsedKeys {
		used := r.used
		r.used = nil
		return used
	}
	part := map[string]int64{}
	for fingerprint, at := range r.used {
		if part[fingerprint] = at; len(part) == allocation.MaxUsedKeys {
			break
		}
	}
	for fingerprint := range part {
		delete(r.used, fingerprint)
	}
	return part
}
