package coordinator

import (
	"cmp"
	"slices"
	"time"

	"tranche/allocation"
)

// Receipts of refusals are checked with the key that both sides derive from the region's token: see allocation.ReceiptKey.
// A token is replaced now and then, and a region removed; what was signed before must still be told from a forgery:
//
//	/tranche/receipts/REGION/KEY   a receipt key that a region signs, or signed, with
//
// Whoever reads etcd can sign as a region. No request is admitted by that, and no token found.
const receiptPrefix = Root + "receipts/"

// maxReceiptKeys bounds how many keys of one region are kept: the oldest goes first.
const maxReceiptKeys = 100

func receiptKeyKey(region, id string) string { return receiptPrefix + region + "/" + id }

// ReceiptKeyDocument is one receipt key.
type ReceiptKeyDocument struct {
	Format     int       `json:"format"`
	Deployment string    `json:"deployment"`
	Region     string    `json:"region"`
	ID         string    `json:"id"`
	Key        string    `json:"key"` // no credential: it only signs receipts
	Since      time.Time `json:"since"`
}

// receiptKeys are those that are kept, by their keys in the store.
type receiptKeys struct {
	kept map[string]*doc[ReceiptKeyDocument]
}

func (k *receiptKeys) enter(e Event) error {
	delete(k.kept, e.Key)
	return enter(e, func(d *doc[ReceiptKeyDocument]) {
		if k.kept == nil {
			k.kept = map[string]*doc[ReceiptKeyDocument]{}
		}
		k.kept[e.Key] = d
	})
}

// of are the keys of a region, oldest first.
func (k *receiptKeys) of(region string) []*doc[ReceiptKeyDocument] {
	var out []*doc[ReceiptKeyDocument]
	for _, d := range k.kept {
		if d.value.Region == region {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *doc[ReceiptKeyDocument]) int {
		return cmp.Or(a.value.Since.Compare(b.value.Since), cmp.Compare(a.value.ID, b.value.ID))
	})
	return out
}

// keepReceiptKey makes a change keep the receipt key of a region's token. The caller holds the lock.
func (s *Service) keepReceiptKey(c *Change, token TokenDocument) {
	k := allocation.NewReceiptKey(s.state.deployment.value.ID, token.Region, token.Hash)
	key := receiptKeyKey(token.Region, k.ID)
	if s.state.receiptKeys.kept[key] != nil {
		return
	}
	c.Reads = append(c.Reads, Item{Key: key})
	c.Puts = append(c.Puts, put(key, ReceiptKeyDocument{
		Format: documentFormat, Deployment: k.Deployment, Region: k.Region, ID: k.ID, Key: k.Stored(), Since: s.now().UTC(),
	}))
	if list := s.state.receiptKeys.of(token.Region); len(list) >= maxReceiptKeys {
		c.Reads, c.Deletes = append(c.Reads, list[0].item), append(c.Deletes, list[0].item.Key)
	}
}

// dueReceiptKeys are changes that keep the keys of tokens which were made without one: by an older version.
func (s *Service) dueReceiptKeys() (due []Change) {
	if s.state.deployment == nil {
		return nil
	}
	for _, r := range s.state.ordered {
		token := s.state.tokens[regionToken(r.name)]
		if token == nil {
			continue
		}
		var c Change
		if s.keepReceiptKey(&c, token.value); len(c.Puts) > 0 {
			c.Reads = append(c.Reads, token.item)
			due = append(due, c)
		}
	}
	return due
}

// receiptKey finds a key by what a receipt says of it. The caller holds the lock.
func (s *state) receiptKey(region, id string) (allocation.ReceiptKey, bool) {
	if s.deployment != nil {
		if token := s.tokens[regionToken(region)]; token != nil {
			if k := allocation.NewReceiptKey(s.deployment.value.ID, region, token.value.Hash); k.ID == id {
				return k, true
			}
		}
	}
	d := s.receiptKeys.kept[receiptKeyKey(region, id)]
	if d == nil {
		return allocation.ReceiptKey{}, false
	}
	k, err := allocation.StoredReceiptKey(d.value.Deployment, d.value.Region, d.value.Key)
	return k, err == nil && k.ID == id
}
