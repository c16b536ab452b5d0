package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
)

// maxRecordFile bounds what is read as a record.
const maxRecordFile = 1 << 20

// What a replay comes to.
const (
	replaySame       = "same"
	replayDiffers    = "differs"
	replayNotDecided = "not_decided" // no owner decided it
)

// replayAnswer says what a replay came to.
type replayAnswer struct {
	Decision    string                  `json:"decision"`
	Replay      string                  `json:"replay"`
	Detail      string                  `json:"detail,omitempty"` // of not_decided, and of a record that cannot be decided
	Differences []allocation.Difference `json:"differences,omitempty"`
}

// replayed decides a record again. One that lacks what it needs, or is no record, differs.
func replayed(r allocation.Record) replayAnswer {
	out := replayAnswer{Decision: r.Name, Replay: replaySame}
	differ, err := r.Compare()
	switch {
	case errors.Is(err, allocation.ErrNotDecided):
		out.Replay, out.Detail = replayNotDecided, err.Error()
	case err != nil:
		out.Replay, out.Detail = replayDiffers, err.Error()
	case len(differ) > 0:
		out.Replay, out.Differences = replayDiffers, differ
	}
	return out
}

// result is the error that a command ends with.
func (r replayAnswer) result() error {
	if r.Replay == replayDiffers {
		return errNotWell
	}
	return nil
}

func (a *App) showReplay(r replayAnswer) {
	a.printf("replay     %s", strings.ReplaceAll(r.Replay, "_", " "))
	if r.Detail != "" {
		a.printf(": %s", r.Detail)
	}
	a.printf("\n")
	for _, d := range r.Differences {
		a.printf("           %s: recorded %s, replayed %s\n", d.Field, none(d.Recorded), none(d.Replayed))
	}
}

func none(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

func (a *App) refusalsReplay() *cobra.Command {
	c := &cobra.Command{
		Use: "replay DECISION | FILE | -", Short: "Decide a recorded refusal again, from its evidence", Args: exactly("DECISION"),
		Long: `Decide a recorded decision again with the same function, over the request, the counters and the policies that its
record holds, and compare. "same": the rules that were in force then were followed. The status is 3 if it differs. The
record is asked of a node, or read from a file (- is standard input) that "tranche refusals find --json" wrote or one
record of it: then nothing is asked of anybody.`,
		Example: "  tranche refusals replay 5f0c7e3b9a1d2c44\n  tranche refusals replay record.json",
		RunE: func(c *cobra.Command, args []string) error {
			records, err := a.recordsOf(c, args[0])
			if err != nil {
				return err
			}
			var answers []replayAnswer
			for _, r := range records {
				answers = append(answers, replayed(r))
			}
			if a.json {
				if err := a.printJSON(answers); err != nil {
					return err
				}
			}
			for i, r := range answers {
				if !a.json {
					a.printf("decision   %s: %s\n", r.Decision, records[i].Decision.Reason)
					a.showReplay(r)
				}
				err = errors.Join(err, r.result())
			}
			if err != nil {
				return errNotWell
			}
			return nil
		},
	}
	a.withNode(c)
	a.withJSON(c)
	return c
}

// recordsOf are the records that an argument names: a decision's id, or a file.
func (a *App) recordsOf(c *cobra.Command, named string) ([]allocation.Record, error) {
	if isDecision(named) {
		r, _, err := a.recordOf(c, named)
		return []allocation.Record{r}, err
	}
	from := a.in
	if named != "-" {
		f, err := os.Open(named)
		if err != nil {
			return nil, usagef("%s is no decision's id (16 hexadecimal digits, as a receipt names it), and no file that can be read: %w", named, err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(bufio.NewReader(io.LimitReader(from, maxRecordFile)))
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	var many recordsAnswer
	if err := json.Unmarshal(text, &many); err == nil && len(many.Records) == 0 {
		many.Records = []json.RawMessage{text}
	} else if err != nil {
		return nil, usagef("%s holds no record: %w", named, err)
	}
	var out []allocation.Record
	for _, one := range many.Records {
		var r allocation.Record
		if err := json.Unmarshal(one, &r); err != nil || r.Format == 0 {
			return nil, usagef("%s holds no record of a refusal; write one with: tranche refusals find --decision ID --json", named)
		}
		out = append(out, r)
	}
	return out, nil
}

// isDecision says whether a text is the id of a decision, as a receipt names it.
func isDecision(text string) bool {
	return len(text) == 16 && strings.Trim(text, "0123456789abcdef") == ""
}

// recordOf asks a node for one decision's record.
func (a *App) recordOf(c *cobra.Command, decision string) (r allocation.Record, region string, err error) {
	client, err := a.node(c)
	if err != nil {
		return r, "", err
	}
	var list recordsAnswer
	if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/refusals", Query: url.Values{"decision": {decision}}}, &list); err != nil {
		return r, "", err
	}
	if len(list.Records) == 0 {
		return r, "", fmt.Errorf("region %s keeps no record of decision %s: it is of another region, was not in the sample, or is too old; its receipt can still be explained", list.Region, decision)
	}
	if err := json.Unmarshal(list.Records[0], &r); err != nil {
		return r, "", fmt.Errorf("read the record: %w", err)
	}
	return r, list.Region, nil
}

// recordExplanation is what is said of a stored record.
type recordExplanation struct {
	Region      string                 `json:"region"`
	Explanation allocation.Explanation `json:"explanation"`
	Replay      replayAnswer           `json:"replay"`
	Record      allocation.Record      `json:"record"`
}

// explainRecord explains a decision by its stored record.
func (a *App) explainRecord(c *cobra.Command, decision string) error {
	r, region, err := a.recordOf(c, decision)
	if err != nil {
		return err
	}
	e := recordExplanation{Region: region, Explanation: allocation.Explain(allocation.NewReceipt(&r.Decision, r.Name)), Replay: replayed(r), Record: r}
	if a.json {
		if err := a.printJSON(e); err != nil {
			return err
		}
		return e.Replay.result()
	}
	a.showRecord(e)
	return e.Replay.result()
}

func (a *App) showRecord(e recordExplanation) {
	r, d, x := e.Record, e.Record.Decision, e.Explanation
	said := "refused: " + string(d.Reason)
	if d.Admitted() {
		said = "admitted: " + d.Action + yes(d.Would != "", ", in shadow; enforcement would say "+string(d.Would))
	}
	a.printf("recorded. %s, %s, in %s%s\n%s\n", said, time.UnixMicro(d.At).UTC().Format(time.RFC3339), e.Region, yes(d.Evidence.Node != "", " by "+d.Evidence.Node), allocation.AnswerTo(d.Reason).Title)
	if d.Detail != "" {
		a.printf("%s\n", d.Detail)
	}
	a.printf("\ncause      %s\n           %s\nowner      %s\n", x.Cause, x.Meaning, x.Owner)
	if x.Evidence != nil {
		a.printf("evidence   %d ms old then%s\n", *x.Evidence, yes(!x.Fresh, ": too old to prove a ceiling"))
	}
	a.printf("decision   %s%s\n", r.Name, yes(r.Request.Key.ID != "", ", admission id "+r.Request.Key.ID))
	a.printf("asked      %s by %s: %s%s\n", r.Request.Op, r.Request.Key.Credential, r.Request.Labels, yes(r.Request.Correlation != "", ", correlation "+r.Request.Correlation))
	for _, b := range d.Budgets {
		a.printf("budget     %s%s: %s; asked %d %s, left %d, share %d, limit %d, version %d, generation %d\n",
			b.Budget, yes(b.Instance != "", " ["+b.Instance+"]"), b.Reason, b.Requested, b.Unit, b.Remaining, b.Share, b.Limit, b.Version, b.Generation)
	}
	a.showReplay(e.Replay)
	a.printf("\ndo:\n  %s\ndo not:\n  %s\n", strings.Join(x.Do, "\n  "), strings.Join(x.DoNot, "\n  "))
}
