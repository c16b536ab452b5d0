// Package books reads the whole account of a deployment from its coordinator and its owners, for allocation.Verify to
// judge, and keeps it as an evidence file that a third party can judge again, without any access.
//
//	ledgers ─▶ each owner's account ─▶ ledgers again, no older than what any owner had heard ─▶ allocation.Verify
package books

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
	"tranche/regional"
)

const (
	pageSize = 100
	// laterPatience bounds the wait for a replica of the coordinator to hear what an owner had already heard.
	laterPatience = 10 * time.Second
	laterEvery    = 50 * time.Millisecond
)

// Sources are where to read.
type Sources struct {
	Coordinator *api.Client
	// Nodes are the addresses to ask for each region's account, tried in their order. See NodesOf.
	Nodes map[string][]string
	// Node makes a client for an address.
	Node func(address string) (*api.Client, error)
	Now  func() time.Time
}

// Reading is the books, how fresh their parts are, and what could not be read.
type Reading struct {
	Books      allocation.Books
	Parts      []Part
	Deployment string
	Failed     map[string]string // by region, why
}

// Part is one of the readings that the books are made of, in the order in which they were taken.
type Part struct {
	Read     string `json:"read"` // "ledgers", "owner of REGION" or "ledgers again"
	From     string `json:"from"` // the address that was asked
	Revision int64  `json:"revision"`
	// AgeMillis is how old the ledgers were that the coordinator answered with: it answers from memory, also while etcd has
	// no quorum. An owner's account is read from its database at once; its revision is that of the ledgers it had heard of.
	// Nil: it is not told.
	AgeMillis *int64 `json:"age_ms,omitempty"`
}

// Age is how old the part was when it was read; false if that is not told.
func (p Part) Age() (time.Duration, bool) {
	if p.AgeMillis == nil {
		return 0, false
	}
	return time.Duration(*p.AgeMillis) * time.Millisecond, true
}

// The names of the parts that are no owner's.
const (
	partEarlier = "ledgers"
	partLater   = "ledgers again"
)

// Read takes the three readings. A region that cannot be read is no error: what it holds is reported as not read.
func Read(ctx context.Context, s Sources) (Reading, error) {
	r := Reading{Failed: map[string]string{}}
	earlier, err := ledgers(ctx, s.Coordinator)
	if err != nil {
		return r, fmt.Errorf("read the ledgers: %w", err)
	}
	r.Books.Earlier, r.Parts = earlier.list, append(r.Parts, earlier.part(s.Coordinator, partEarlier))
	var heard int64
	for _, region := range slices.Sorted(maps.Keys(s.Nodes)) {
		account, part, err := readOwner(ctx, s, region)
		if answer, told := errors.AsType[*api.Error](err); told && answer.Status/100 == 4 {
			return r, fmt.Errorf("read the account of region %s: %w", region, err) // it is there, and we ask wrongly
		}
		if _, is := errors.AsType[*mismatch](err); is {
			return r, err
		}
		if err != nil {
			r.Failed[region] = err.Error()
			continue
		}
		r.Books.Owners, r.Parts = append(r.Books.Owners, account), append(r.Parts, part)
		heard = max(heard, part.Revision)
	}
	later, err := ledgersSince(ctx, s.Coordinator, heard)
	if err != nil {
		return r, fmt.Errorf("read the ledgers again: %w", err)
	}
	r.Books.Later, r.Books.Now = later.list, allocation.At(s.Now())
	var status struct {
		Deployment  string `json:"deployment"`
		EvidenceAge *int64 `json:"evidence_age_ms"`
	}
	if _, err := s.Coordinator.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/status"}, &status); err != nil {
		return r, fmt.Errorf("read the deployment's id: %w", err)
	}
	if status.Deployment == "" {
		return r, s.Coordinator.Mistaken(s.Coordinator.Address(), "")
	}
	r.Deployment = status.Deployment
	if later.age == nil {
		later.age = status.EvidenceAge // a coordinator that does not date its ledgers dates its status
	}
	r.Parts = append(r.Parts, later.part(s.Coordinator, partLater))
	return r, nil
}

// dated are all ledgers as one coordinator knows them: of a revision, and so old.
type dated struct {
	list     []allocation.Ledger
	revision int64  // the least of the pages'
	age      *int64 // the greatest of the pages', in milliseconds; nil if they do not tell
}

func (d dated) part(c *api.Client, read string) Part {
	return Part{Read: read, From: c.Address(), Revision: d.revision, AgeMillis: d.age}
}

// ledgersSince reads the ledgers at a revision that no owner was ahead of: a replica that lags would make a grant look
// invented.
func ledgersSince(ctx context.Context, c *api.Client, heard int64) (dated, error) {
	ctx, cancel := context.WithTimeout(ctx, laterPatience)
	defer cancel()
	tick := time.NewTicker(laterEvery)
	defer tick.Stop()
	for {
		d, err := ledgers(ctx, c)
		if err != nil || d.revision >= heard {
			return d, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return d, fmt.Errorf("the coordinator at %s is at revision %d, and an owner has heard of %d; ask another replica, or look at etcd with `tranche status`",
				c.Address(), d.revision, heard)
		}
	}
}

// ledgers reads all of them.
func ledgers(ctx context.Context, c *api.Client) (d dated, err error) {
	after := ""
	for {
		var page struct {
			coordinator.LedgersPage
			Age *int64 `json:"evidence_age_ms"`
		}
		query := url.Values{"limit": {strconv.Itoa(pageSize)}}
		if after != "" {
			query.Set("after", after)
		}
		if _, err := c.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/ledgers", Query: query}, &page); err != nil {
			return d, err
		}
		if d.revision == 0 || page.Revision < d.revision {
			d.revision = page.Revision
		}
		if page.Age != nil && (d.age == nil || *page.Age > *d.age) {
			d.age = page.Age
		}
		for _, stored := range page.Ledgers {
			var l allocation.Ledger
			if err := json.Unmarshal(stored.Ledger, &l); err != nil {
				return d, fmt.Errorf("read %s: %w", stored.Key, err)
			}
			if l.Format != allocation.LedgerFormat {
				return d, fmt.Errorf("%s is of format %d and this program knows %d; use a newer tranche", stored.Key, l.Format, allocation.LedgerFormat)
			}
			d.list = append(d.list, l)
		}
		if page.Next == "" {
			return d, nil
		}
		after = page.Next
	}
}

// readOwner reads a region's account through the first of its nodes that answers.
func readOwner(ctx context.Context, s Sources, region string) (allocation.OwnerAccount, Part, error) {
	err := errors.New("none of its nodes says where operators reach it; name one: --node " + region + "=URL")
	for _, address := range s.Nodes[region] {
		var account allocation.OwnerAccount
		var revision int64
		client, failed := s.Node(address)
		if failed == nil {
			account, revision, failed = readNode(ctx, client, region)
			client.Close()
		}
		if failed == nil {
			return account, Part{Read: "owner of " + region, From: address, Revision: revision, AgeMillis: new(int64)}, nil
		}
		err = failed
		if _, is := errors.AsType[*mismatch](err); is {
			break // the next address may be right, and the wrong one would go unnoticed
		}
	}
	return allocation.OwnerAccount{}, Part{}, err
}

// mismatch is an address that leads to a node of another region.
type mismatch struct{ address, asked, found string }

func (m *mismatch) Error() string {
	if m.found == "" {
		return fmt.Sprintf("%s is no node of region %s: its answer names no region; correct --node %s=URL", m.address, m.asked, m.asked)
	}
	return fmt.Sprintf("the node at %s is of region %s, not of %s; correct --node %s=URL", m.address, m.found, m.asked, m.asked)
}

func readNode(ctx context.Context, c *api.Client, region string) (allocation.OwnerAccount, int64, error) {
	var out allocation.OwnerAccount
	after := ""
	for first := true; first || after != ""; first = false {
		var page struct {
			regional.Account
			Next string `json:"next"`
		}
		query := url.Values{"limit": {strconv.Itoa(pageSize)}}
		if after != "" {
			query.Set("after", after)
		}
		if _, err := c.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/account", Query: query}, &page); err != nil {
			return out, 0, err
		}
		if page.Region != region {
			return out, 0, &mismatch{address: c.Address(), asked: region, found: page.Region}
		}
		if !first && page.Incarnation != out.Incarnation {
			return out, 0, errors.New("its incarnation changed while it was read; run verify again")
		}
		out.Region, out.Incarnation, out.Now = page.Region, page.Incarnation, page.Now
		out.Shares, out.Usage = append(out.Shares, page.Shares...), append(out.Usage, page.Usage...)
		after = page.Next
	}
	var status regional.NodeStatus
	if _, err := c.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/status"}, &status); err != nil {
		return out, 0, err
	}
	return out, status.Sync.Revision, nil
}

// NodesOf lists where each region's nodes say they can be reached, the latest seen first. Given addresses go before.
func NodesOf(regions []coordinator.RegionAnswer, given map[string]string) map[string][]string {
	nodes := map[string][]string{}
	for _, r := range regions {
		if r.Incarnation == "" {
			continue // it has not called yet, and holds nothing
		}
		nodes[r.Region] = nil
		seen := slices.SortedFunc(slices.Values(r.Nodes), func(a, b coordinator.NodeSeen) int { return b.At.Compare(a.At) })
		for _, n := range seen {
			if n.URL != "" {
				nodes[r.Region] = append(nodes[r.Region], n.URL)
			}
		}
	}
	for region, address := range given {
		nodes[region] = append([]string{address}, nodes[region]...)
	}
	return nodes
}
