package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/books"
)

// totals are the sums over all periods in which something was spent.
type totals struct{ limit, spent, overspent, naive int64 }

// account reads etcd and both databases and judges the whole account, as `tranche verify` does. So many incarnations can be
// read no more. What the databases hold must be what the gateways wrote down themselves.
func (w *world) account(ctx context.Context, lost int) (e books.Evidence, err error) {
	nodes := map[string][]string{}
	for name, r := range w.Regions {
		nodes[name] = []string{r.Nodes[len(r.Nodes)-1].Address}
	}
	err = until(ctx, "the account stands still and adds up", func() (bool, error) {
		r, err := books.Read(ctx, books.Sources{
			Coordinator: w.admin, Nodes: nodes, Now: time.Now,
			Node: func(address string) (*api.Client, error) { return api.New("node", address, w.Gateways[edge2], "") },
		})
		if err != nil {
			return false, err
		}
		e = books.Judge(r, time.Now(), "")
		for _, v := range e.Report.Violations {
			err = fmt.Errorf("the account does not add up: %s", v)
		}
		return len(e.Report.Unread) == lost && !e.Report.Moving(), err
	})
	if err != nil {
		return e, err
	}
	if at, recorded, stored, differs := w.record.differs(e.Books.Owners); differs {
		return e, fmt.Errorf("%s, period %s, %s: the gateways recorded %d admissions, the database %d", at.budget, at.period, at.region, recorded, stored)
	}
	return e, nil
}

// table is the account of the periods in which something was spent: for people, for programs, and summed up.
func (w *world) table(r allocation.AccountReport) (lines []string, account []fields, sum totals) {
	lines = []string{
		"",
		fmt.Sprintf("%-14s %-21s %6s %6s %5s %5s %9s %7s %7s", "budget", "period", "limit", regionA, regionB, "res.", "spendable", "strand.", "unall."),
	}
	for _, l := range r.Lines {
		if l.Spent == 0 {
			continue
		}
		sum.limit, sum.spent, sum.overspent = sum.limit+l.Limit, sum.spent+l.Spent, sum.overspent+max(0, l.Spent+l.Reserved-l.Limit)
		a, b := spentBy(l, regionA), spentBy(l, regionB)
		lines = append(lines, fmt.Sprintf("%-14s %-21s %6d %6d %5d %7d %9d %7d %7d", l.Budget, l.Period, l.Limit, a, b, l.Reserved, l.Spendable, l.Stranded, l.Unallocated))
		account = append(account, fields{"budget": l.Budget, "period": l.Period.String(), "limit": l.Limit, regionA: a, regionB: b, "spendable": l.Spendable, "stranded": l.Stranded, "unallocated": l.Unallocated})
	}
	return append(lines, ""), account, sum
}

// verify judges the account of the walk.
func (w *world) verify(ctx context.Context) (totals, error) {
	e, err := w.account(ctx, 0)
	if err != nil {
		return totals{}, err
	}
	told := fmt.Sprintf("The whole account, from etcd and both databases: every permit is in exactly one place, and all %d lines add up "+
		"(limit + overcommitted = the classes). What was spent, as it is stored:", len(e.Report.Lines))
	lines, account, t := w.table(e.Report)
	t.naive = w.record.naive()
	lines = append(lines,
		fmt.Sprintf("Spent: %d, by the gateways' own record too. With a counter per region the same requests would have cost %d", t.spent, t.naive),
		fmt.Sprintf("(in period %s: %d of a limit of %d).", w.record.spentIn(budgetRequests)[0], 2*limit, limit))
	w.tell.step("verify", fields{"conserved": true, "lines": len(e.Report.Lines), "spent": t.spent, "limit": t.limit, "counter_per_region": t.naive, "account": account}, told, lines...)
	return t, nil
}

func spentBy(l allocation.AccountLine, region string) (spent int64) {
	for _, p := range l.Parts {
		if p.Region == region {
			spent += p.Spent
		}
	}
	return spent
}

// keep leaves everything running until the demo is ended, and says how to play with it.
func (w *world) keep(ctx context.Context) {
	var addresses []string
	for _, name := range []string{regionA, regionB} {
		for _, n := range w.Regions[name].Nodes {
			if n.Running() {
				addresses = append(addresses, fmt.Sprintf("%s %s", n.Name, n.Address))
			}
		}
	}
	node := w.Regions[regionB].Nodes[0]
	if w.tell.json {
		w.tell.object("keep", fields{"coordinator": w.admin.Address(), "token": w.AdminToken, "nodes": addresses, "node_token": w.Gateways[edge1], "command": tranche()})
	}
	w.tell.say("\nIt keeps running until Ctrl-C. The coordinator is at %s, the nodes are at\n  %s\n", w.admin.Address(), strings.Join(addresses, "\n  "))
	w.tell.say("Ask for a permit:\n  curl -s -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -H 'Admission-Id: try-1' \\\n    -d '{\"labels\":{\"tenant\":\"%s\"}}' %s/v1/admit\n",
		w.Gateways[edge1], budgetRequests, node.Address)
	command := tranche()
	w.tell.say("Look around:\n  export TRANCHE_COORDINATOR=%s TRANCHE_TOKEN=%s\n  export TRANCHE_NODE=%s TRANCHE_NODE_TOKEN=%s\n  %s status\n  %s budgets shares %s\n  %s verify",
		w.admin.Address(), w.AdminToken, node.Address, w.Gateways[edge1], command, command, budgetRequests, command)
	<-ctx.Done()
}
