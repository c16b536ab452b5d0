package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// keyring is callers' keys in a run: some clients ask with a key of their own, and an operator rotates and revokes keys, and
// blocks tenants and lifts that again, while everything else goes on. It draws from a source of its own, so that the rest of
// a seed's world does not rest on it.
type keyring struct {
	fleet  *fleet
	random *rand.Rand
	issuer *operator
	keys   map[string]allocation.Presented // the newest of each tenant
}

// keyedIn is in one of how many runs there are keys.
const keyedIn = 4

// newKeyring is nil in runs without keys.
func newKeyring(f *fleet) *keyring {
	random := f.w.Random("keys")
	on := f.o.Focus == nil && random.IntN(keyedIn) == 0 || f.o.Focus != nil && f.o.Focus.Keys
	if !on {
		return nil
	}
	p := f.w.Process("key-operator")
	p.Serve()
	return &keyring{fleet: f, random: random, keys: map[string]allocation.Presented{}, issuer: &operator{fleet: f, process: p, random: random}}
}

var keyedTenants = []string{tenantSteady, tenantChanging}

// begin issues the first keys.
func (k *keyring) begin(ctx context.Context) {
	if k == nil {
		return
	}
	for _, tenant := range keyedTenants {
		k.issue(ctx, tenant)
	}
}

// issue makes a key of a tenant, or rotates the one that there is already: the answer that said it may have been lost.
func (k *keyring) issue(ctx context.Context, tenant string) {
	body := map[string]any{"name": tenant, "tenant": tenant, "capabilities": []string{"*"}, "essential": true}
	if tenant == tenantChanging {
		body["max_evidence_age"] = "3s"
	}
	r := k.issuer.until(ctx, "POST", "/v1/keys", body)
	if r.status == http.StatusConflict {
		r = k.issuer.until(ctx, "POST", "/v1/keys/"+tenant+"/rotate", map[string]any{"overlap": oneOf(k.random, "0s", "5s")})
	}
	var made struct {
		Key string `json:"key"`
	}
	if r.status != http.StatusCreated || json.Unmarshal(r.body, &made) != nil {
		return
	}
	if p, ok := allocation.Present(made.Key); ok {
		k.keys[tenant] = p
	}
}

// run changes keys and blocks until the faults are over.
func (k *keyring) run() {
	ctx := k.issuer.process.Context()
	for !k.fleet.faults.over {
		k.issuer.process.Sleep(ctx, time.Second+time.Duration(k.random.Int64N(int64(6*time.Second))))
		tenant := oneOf(k.random, keyedTenants...)
		switch k.random.IntN(4) {
		case 0:
			k.issue(ctx, tenant)
		case 1:
			k.issuer.call(ctx, "POST", "/v1/blocks", map[string]any{"match": map[string]string{"tenant": tenant}, "for": "1d", "reason": "drill"}, "")
		case 2:
			k.lift(ctx)
		default:
			k.issuer.call(ctx, "POST", "/v1/keys/"+tenant+"/revoke", map[string]any{"reason": "drill"}, "")
		}
	}
}

// lift lifts all blocks that the coordinator lists.
func (k *keyring) lift(ctx context.Context) {
	var list struct {
		Blocks []struct {
			ID string `json:"id"`
		} `json:"blocks"`
	}
	r := k.issuer.call(ctx, "GET", "/v1/blocks", nil, "")
	if r.status != http.StatusOK || json.Unmarshal(r.body, &list) != nil {
		return
	}
	for _, b := range list.Blocks {
		k.issuer.call(ctx, "POST", "/v1/blocks/"+b.ID+"/lift", map[string]any{"reason": "drill"}, "")
	}
}

// draw is the key that a new request of a tenant comes with; none for every other one, which a gateway asks.
func (k *keyring) draw(tenant string) (p allocation.Presented, with bool) {
	if k == nil || k.random.IntN(2) == 0 {
		return p, false
	}
	p, with = k.keys[tenant]
	return p, with
}

// barred says for which requests the database that a node works on holds that they may not be admitted: a key that was
// ended for good, or a block that is in force. It was stored before they came, so no decision may lack it.
func (k *keyring) barred(n *node, requests []allocation.Request) []string {
	if k == nil {
		return nil
	}
	db := n.endpoint.Database()
	why := make([]string, len(requests))
	for i, r := range requests {
		if r.Op != allocation.Spend && r.Op != allocation.Reserve {
			continue
		}
		if d, known := db.Document(allocation.DocumentRef{Kind: allocation.KindKey, Name: r.Presented.Fingerprint}); known && d.Final {
			why[i] = "its key was revoked"
		}
		for _, d := range db.Documents(allocation.KindBlock) {
			if b, err := d.Block(); err == nil && !d.Final && b.Counts(n.region.name, instantOf(db)) && b.Match["tenant"] == r.Labels["tenant"] {
				why[i] = "its tenant is blocked by " + d.Name
			}
		}
	}
	return why
}

// keyTooOld says whether an admission with a key was made on evidence that is older than the key allows, as the database knows it.
func keyTooOld(db *ownertwin.Database, a *allocation.Admission) bool {
	d, known := db.Document(allocation.DocumentRef{Kind: allocation.KindKey, Name: a.First.Fingerprint})
	if !known {
		return false
	}
	k, err := d.Key()
	oldest := int64(k.MaxEvidenceAge) * 1_000_000
	return err == nil && oldest > 0 && (a.First.ObservedAt == 0 || a.At-a.First.ObservedAt > oldest)
}

// instantOf is now by a database's clock, which is what ends blocks.
func instantOf(db *ownertwin.Database) allocation.Instant {
	return allocation.Instant(db.Clock().Micros() / 1_000_000)
}

// judge judges that a request which was barred when it came, and is barred still, was not admitted, replays included
// (invariant 11: what stops traffic stops it, whatever is left of a budget).
func (k *keyring) judge(n *node, requests []allocation.Request, before []string, d []allocation.Decision) {
	if k == nil {
		return
	}
	after := k.barred(n, requests)
	for i := range d {
		if before[i] == "" || after[i] != before[i] {
			continue
		}
		k.fleet.check.must(!d[i].Admitted(), 11, "%s admits %s (replayed: %v), although %s before it was asked for", n.process.Name(), d[i].Key.ID, d[i].Replayed, before[i])
	}
}

// missing is what has yet to come right of keys and blocks.
func (k *keyring) missing(say func(string, ...any)) {
	if k == nil {
		return
	}
	for _, r := range k.fleet.regions {
		if through := r.db.DocumentsThrough(); through < k.fleet.check.number.Config {
			say("%s has stored documents through %d of %d", r.name, through, k.fleet.check.number.Config)
		}
		if n := r.db.Untold(); n > 0 {
			say("%s holds %d documents that the coordinator has not told", r.name, n)
		}
		for _, d := range r.db.Documents(allocation.KindBlock) {
			if b, err := d.Block(); err == nil && !d.Final && b.Counts(r.name, instantOf(r.db)) {
				say("%s holds block %s in force", r.name, d.Name)
			}
		}
	}
}

// agree judges, at the end, that no end was forgotten: what one region holds as ended, all hold so (invariant 8: an older
// state undoes nothing, also not that of an etcd that went back).
func (k *keyring) agree() {
	if k == nil {
		return
	}
	ended := map[allocation.DocumentRef]string{}
	var refs []allocation.DocumentRef
	for _, r := range k.fleet.regions {
		for _, kind := range []string{allocation.KindKey, allocation.KindBlock} {
			for _, d := range r.db.Documents(kind) {
				if _, known := ended[d.Ref()]; d.Final && !known {
					ended[d.Ref()], refs = r.name, append(refs, d.Ref())
				}
			}
		}
	}
	slices.SortFunc(refs, allocation.DocumentRef.Compare)
	for _, ref := range refs {
		for _, r := range k.fleet.regions {
			d, known := r.db.Document(ref)
			k.fleet.check.must(known && d.Final, 8, "%s knows that %s %s was ended, and %s does not (known: %v): %s", ended[ref], ref.Kind, ref.Name, r.name, known, fmt.Sprint(d.Version))
		}
	}
}
