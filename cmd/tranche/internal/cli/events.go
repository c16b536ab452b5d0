package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

// followEvery is how often `tranche events --follow` asks.
const followEvery = time.Second

func (a *App) eventsCommand() *cobra.Command {
	var since string
	var limit int
	var follow bool
	c := &cobra.Command{
		Use: "events", Short: "Show what crossed a line: thresholds, stranded permits, freezes, blocks, overrides", Args: exactly(),
		Long: `Show the feed of events, oldest first: each crossing is told once. Without --since the latest are shown. The id of an event
is also the cursor to go on from. With --json there is one event on each line.`,
		Example: `  tranche events --limit 20
  tranche events --follow --json
  tranche events --since 00000000004294967298-5f0c9a41`,
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d: use at least 1", limit)
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			show := a.eventPrinter()
			list, cursor, err := a.readEvents(c.Context(), client, since, limit, since == "")
			if err != nil {
				return err
			}
			show(list)
			away := false
			for follow {
				if !pause(c.Context(), followEvery) {
					return nil
				}
				// Everything that is new, however much.
				news, reached, err := a.readEvents(c.Context(), client, cursor, 0, false)
				switch {
				case c.Context().Err() != nil:
					return nil // it was interrupted
				case err != nil && !mayPass(err):
					return err
				case err != nil:
					a.sayOnce(&away, err)
					continue
				}
				cursor, away = reached, false
				show(news)
			}
			return nil
		},
	}
	c.Flags().StringVar(&since, "since", "", "`ID` of an event: show what came after it")
	c.Flags().IntVar(&limit, "limit", 50, "show so many at most")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes, until it is interrupted")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// mayPass says whether a coordinator that answered so, or not at all, may answer otherwise in a while.
func mayPass(err error) bool {
	told, answered := errors.AsType[*api.Error](err)
	return !answered || told.Status == 0 || told.Status >= http.StatusInternalServerError
}

// sayOnce tells of an outage when it begins.
func (a *App) sayOnce(said *bool, err error) {
	if !*said {
		fmt.Fprintf(a.err, "note: %v; going on as soon as it answers\n", err)
	}
	*said = true
}

// pause waits; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// readEvents reads from a cursor on: so many at most, 0: all; or the latest of all so many.
func (a *App) readEvents(ctx context.Context, client *api.Client, cursor string, limit int, latest bool) ([]coordinator.FeedEvent, string, error) {
	var list []coordinator.FeedEvent
	for {
		query := url.Values{"limit": {"1000"}}
		if limit > 0 && !latest {
			query.Set("limit", strconv.Itoa(min(1000, limit-len(list))))
		}
		if cursor != "" {
			query.Set("after", cursor)
		}
		var page coordinator.EventsPage
		if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/events", Query: query}, &page); err != nil {
			return nil, "", err
		}
		if page.Missed != "" {
			fmt.Fprintln(a.err, "note:", page.Missed)
		}
		list, cursor = append(list, page.Events...), page.Cursor
		if limit > 0 && latest {
			list = list[max(0, len(list)-limit):]
		}
		if !page.More || limit > 0 && !latest && len(list) >= limit {
			return list, cursor, nil
		}
	}
}

// eventPrinter prints events as they come: one line each.
func (a *App) eventPrinter() func([]coordinator.FeedEvent) {
	if a.json {
		e := json.NewEncoder(a.out)
		e.SetEscapeHTML(false)
		return func(list []coordinator.FeedEvent) {
			for _, event := range list {
				_ = e.Encode(event) // who reads may be gone; the next request says so no worse
			}
		}
	}
	return func(list []coordinator.FeedEvent) {
		for _, e := range list {
			a.printf("%s  %-13s %-7s  %s%s\n", e.At.UTC().Format(time.RFC3339), e.Kind, e.Change, e.Text, eventTail(e))
		}
	}
}

// eventTail is who and why, where somebody gave it.
func eventTail(e coordinator.FeedEvent) string {
	tail := ""
	for _, b := range e.Budgets {
		tail += fmt.Sprintf("\n%38s%s: %d %s", "", b.Budget, b.Stranded, b.Unit)
	}
	if e.More > 0 {
		tail += fmt.Sprintf("\n%38sand %s more", "", counted(e.More, "budget"))
	}
	switch {
	case e.By != "":
		return fmt.Sprintf(" (%s: %s)", e.By, e.Reason) + tail
	case e.Reason != "":
		return " (" + e.Reason + ")" + tail
	}
	return tail
}
