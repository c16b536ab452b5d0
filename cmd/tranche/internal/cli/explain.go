package cli

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) explainCommand() *cobra.Command {
	var again bool
	c := &cobra.Command{
		Use: "explain RECEIPT | DECISION", Short: "Explain a refusal by its receipt, also one from long ago, or by its record", Args: exactly("RECEIPT"),
		Long: `Check the receipt that came with a refusal, and say what it was, whose boundary it met, what to do and what
not to do, and how the budget stands now. Nothing of the refusal need be stored: the receipt says it, and the coordinator
checks its signature. - reads it from standard input. The status is 3 if the receipt is not genuine.

With a decision's id (16 hexadecimal digits) it asks a node of the region for the record, if it was kept in full, and
decides it again from its evidence: "same", or the difference and status 3. --replay does so for a receipt, too.

The receipt is in the header Tranche-Receipt of the refusal, and in its body as receipt.`,
		Example: "  tranche explain tr1.…\n  tranche explain - < receipt.txt\n  tranche explain 5f0c7e3b9a1d2c44",
		RunE: func(c *cobra.Command, args []string) error {
			receipt := args[0]
			if receipt == "-" {
				text, err := io.ReadAll(bufio.NewReader(io.LimitReader(a.in, 4*allocation.MaxReceipt)))
				if err != nil {
					return fmt.Errorf("read the receipt: %w", err)
				}
				receipt = strings.TrimSpace(string(text))
			}
			if isDecision(receipt) {
				return a.explainRecord(c, receipt)
			}
			if again && a.json {
				return usagef("--replay with --json is two documents: give the decision's id in place of the receipt")
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var answer coordinator.ExplainAnswer
			body := map[string]string{"receipt": receipt}
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodPost, Path: "/v1/explain", Body: body, Reads: true}, &answer); err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(answer)
			} else {
				a.showExplanation(answer)
			}
			if err == nil && answer.Verdict != coordinator.VerdictGenuine {
				err = errNotWell
			}
			if err == nil && again {
				return a.explainRecord(c, answer.Receipt.Decision)
			}
			return err
		},
	}
	c.Flags().BoolVar(&again, "replay", false, "find the record of the receipt's decision, too, and decide it again")
	a.withCoordinator(c)
	a.withNode(c)
	a.withJSON(c)
	return c
}

func (a *App) showExplanation(e coordinator.ExplainAnswer) {
	if e.Verdict != coordinator.VerdictGenuine {
		a.printf("not genuine: %s\n%s\n", strings.ReplaceAll(e.Verdict, "_", " "), e.Detail)
		return
	}
	r, x := e.Receipt, e.Explanation
	said := "refused: " + r.Reason
	if r.Upstream != "" {
		said = "admitted here; the upstream: " + strings.ReplaceAll(r.Upstream, "_", " ")
	}
	a.printf("genuine. %s, %s, in %s", said, r.At.Format(time.RFC3339), r.Region)
	if r.Node != "" {
		a.printf(" by %s", r.Node)
	}
	a.printf("\n%s\n\n", allocation.AnswerTo(allocation.Reason(r.Reason)).Title)
	a.printf("cause      %s\n           %s\n", x.Cause, x.Meaning)
	a.printf("owner      %s\n", x.Owner)
	switch {
	case x.Evidence == nil:
		a.printf("evidence   none: the region had not heard from the coordinator\n")
	default:
		a.printf("evidence   %d ms old then%s\n", *x.Evidence, yes(!x.Fresh, ": too old to prove a ceiling"))
	}
	a.printf("decision   %s%s\n", r.Decision, yes(r.AdmissionID != "", ", admission id "+r.AdmissionID))
	if r.Budget != "" {
		a.showBudgetSince(e)
	}
	a.printf("\ndo:\n")
	for _, line := range x.Do {
		a.printf("  %s\n", line)
	}
	a.printf("do not:\n")
	for _, line := range x.DoNot {
		a.printf("  %s\n", line)
	}
}

func (a *App) showBudgetSince(e coordinator.ExplainAnswer) {
	r, n := e.Receipt, e.Now
	a.printf("\nbudget     %s%s\n", r.Budget, yes(r.Instance != "", " ["+r.Instance+"]"))
	if r.Period != nil {
		a.printf("period     %s to %s: %s\n", r.Period.Start, r.Period.End, n.Period)
	}
	a.printf("then       version %d, generation %d: limit %d, share of %s %d, left %d, asked %d %s\n",
		r.Version, r.Generation, r.Limit, r.Region, r.Share, r.Remaining, r.Requested, r.Unit)
	if o := n.OverrideThen; o != nil {
		a.printf("           its limit includes %d by override %s, until %s, approved by %s: %s\n", o.Units, o.ID, o.Until, o.By, o.Reason)
	}
	switch {
	case !n.Known:
		a.printf("now        there is no budget of this name\n")
	case n.Deleted:
		a.printf("now        deleted, version %d\n", n.Version)
	default:
		a.printf("now        version %d: limit %d%s\n", n.Version, n.Limit, yes(n.ChangedSince, ", changed since"))
		if o := n.Override; o != nil {
			a.printf("           it includes %d by override %s, until %s, approved by %s\n", o.Units, o.ID, o.Until, o.By)
		}
	}
	if s := n.Shares; s != nil {
		spent, reserved := int64(0), int64(0)
		for _, region := range s.Regions {
			spent, reserved = allocation.SumUp(spent, region.Spent), allocation.SumUp(reserved, region.Reserved)
		}
		a.printf("           of its period: %d spent, %d reserved, %d unallocated, %d overcommitted, as last stated\n", spent, reserved, s.Unallocated, s.Overcommitted)
	}
	if c := n.Closing; c != nil {
		for _, region := range c.Regions {
			a.printf("           closed: %s spent %d over the %s of its term\n", region.Region, region.Spent, plural(c.Periods.Len(), "period", "periods"))
		}
	}
	if n.StrandedNow > 0 {
		a.printf("           %d stranded now in %s\n", n.StrandedNow, strings.Join(n.StrandedRegion, ", "))
	}
	for _, s := range e.Stranded {
		end := "still"
		if s.Ended != nil {
			end = "until " + s.Ended.Format(time.RFC3339) + " (" + cmp.Or(s.How, "ended") + ")"
		}
		a.printf("stranded   then, in %s: at most %d, %s, since %s, %s\n", s.Region, s.Most, s.Cause, s.Since.Format(time.RFC3339), end)
	}
}
