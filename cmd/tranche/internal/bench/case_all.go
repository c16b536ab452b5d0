package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"tranche/allocation"
)

// callers is one budget by ever more callers.
func callers(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	var arms []arm
	for _, n := range []int{1, 16, 64, 256, 1024} {
		arms = append(arms, w.closedArm(b, strconv.Itoa(n), n, w.nodes, one(spend(acme))))
	}
	all, err := b.alternate(ctx, result, arms...)
	if err != nil {
		return err
	}
	for _, n := range []string{"16", "64", "256", "1024"} {
		result.shown(n+" callers against 1", ratio(all[n].rates(), all["1"].rates()), "")
	}
	return w.settleBooks(ctx, result, "the node")
}

// three is requests that three budgets apply to.
func three(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	more, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`),
		budget("acme/images", plenty, `{"tenant":"acme","kind":"image"}`), budget("images", plenty, `{"kind":"image"}`))
	if err != nil {
		return err
	}
	defer more.close()
	more.each = 3
	image := allocation.Labels{"tenant": "acme", "kind": "image"}
	all, err := b.alternate(ctx, result,
		w.closedArm(b, "one budget", 1024, w.nodes, one(spend(acme))), more.closedArm(b, "three budgets", 1024, more.nodes, one(spend(image))))
	if err != nil {
		return err
	}
	result.atLeast("three budgets a request against one", ratio(all["three budgets"].rates(), all["one budget"].rates()), 0.75)
	if err := w.settleBooks(ctx, result, "one budget"); err != nil {
		return err
	}
	return more.settleBooks(ctx, result, "three budgets")
}

// twoNodes is a hot budget by two nodes of one owner.
func twoNodes(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := w.addNode(ctx); err != nil {
		return err
	}
	all, err := b.alternate(ctx, result,
		w.closedArm(b, "one node", 1024, w.nodes[:1], one(spend(acme))), w.closedArm(b, "two nodes", 1024, w.nodes, one(spend(acme))))
	if err != nil {
		return err
	}
	result.atLeast("two nodes against one", ratio(all["two nodes"].rates(), all["one node"].rates()), 0.9)
	return w.settleBooks(ctx, result, "both nodes")
}

const (
	fewInstances  = 1000
	manyInstances = 1_000_000
)

// template is a budget for each of many callers. Most of the many are asked for the first time: their rows are made too.
func template(ctx context.Context, b *bench, result *Case) error {
	text := fmt.Sprintf(`{"budget":"caller/{caller}","unit":"requests","limit":%d,"window":%s,"max_instances":%d,"allocation":{"policy":"fixed","weights":{%q:1}}}`,
		int64(1<<40), endless, 2*manyInstances, region)
	w, err := b.newWorld(ctx, forEver(), text)
	if err != nil {
		return err
	}
	defer w.close()
	of := func(n uint64) maker {
		return func(int) func(string) allocation.Request {
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			return func(id string) allocation.Request {
				return request(allocation.Spend, allocation.Labels{"caller": strconv.FormatUint(random.Uint64N(n), 10)}, id)
			}
		}
	}
	all, err := b.alternate(ctx, result,
		w.closedArm(b, "1,000", 1024, w.nodes, of(fewInstances)), w.closedArm(b, "1,000,000", 1024, w.nodes, of(manyInstances)))
	if err != nil {
		return err
	}
	result.atLeast("1,000,000 callers against 1,000", ratio(all["1,000,000"].rates(), all["1,000"].rates()), 0.75)
	result.Notes = append(result.Notes, "drawn evenly, so that nearly every admission of the many is its caller's first and makes a row")
	return w.settleBooks(ctx, result, "the node")
}

// reserveSettle is two calls for each admission: the settle is decided like a spend.
func reserveSettle(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	both := arm{"reserve and settle", "each caller settles what it reserved, then reserves again", func(ctx context.Context, d time.Duration) (tally, error) {
		t := closed(ctx, d, 1024, !b.Random, func(int) client {
			reserve := inProcess(w.nodes[0], patience, func(id string) allocation.Request { return request(allocation.Reserve, acme, id) })
			settle := inProcess(w.nodes[0], patience, func(id string) allocation.Request {
				r := request(allocation.Settle, acme, id)
				r.Labels, r.Costs = nil, map[string]int64{"requests": 1}
				return r
			})
			return func(ctx context.Context, id string) outcome {
				o := reserve(ctx, id)
				if o == admitted || o == replayed {
					settle(ctx, id) // whatever becomes of it, one unit is spent or still reserved
				}
				return o
			}
		})
		return w.counted(t), nil
	}}
	all, err := b.alternate(ctx, result, w.closedArm(b, "spend", 1024, w.nodes, one(spend(acme))), both)
	if err != nil {
		return err
	}
	result.shown("reserve and settle against a spend", ratio(all["reserve and settle"].rates(), all["spend"].rates()), "")
	return w.settleBooks(ctx, result, "the node")
}

const knownIDs = 2048

// replays are requests under ids that were admitted before: each gets its first answer, and nothing is charged.
func replays(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	var known []string
	names := newIDs(!b.Random)
	for range knownIDs {
		known = append(known, names.next())
	}
	w.counted(callersOf(64, func(i int, told note) {
		ask := inProcess(w.nodes[0], patience, spend(acme))
		for n := i; n < knownIDs; n += 64 {
			told(truth(ctx, ask, known[n], ask(ctx, known[n])), 0, 0, true)
		}
	}))
	again := func(int) func(string) allocation.Request {
		random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
		return func(string) allocation.Request { return request(allocation.Spend, acme, known[random.IntN(knownIDs)]) }
	}
	all, err := b.alternate(ctx, result,
		w.closedArm(b, "new ids", 1024, w.nodes, one(spend(acme))), w.closedArm(b, "known ids", 1024, w.nodes, again))
	if err != nil {
		return err
	}
	result.shown("replays against admissions", ratio(all["known ids"].rates(), all["new ids"].rates()), "")
	return w.settleBooks(ctx, result, "the node")
}
