package cli

import (
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
)

// acts is what a command that changes something for good needs: it previews unless it is told --yes, and is named.
type acts struct {
	yes, preview bool
	reason, by   string
}

func (s *acts) flags(c *cobra.Command) {
	c.Flags().BoolVar(&s.preview, "preview", false, "show what would happen, change nothing (the default)")
	c.Flags().BoolVar(&s.yes, "yes", false, "do it; needs --reason and --by")
	c.Flags().StringVar(&s.reason, "reason", "", "`TEXT` for the audit: why")
	c.Flags().StringVar(&s.by, "by", "", "`NAME` of the person who answers for it")
}

// check says whether to do it, or only to preview.
func (s *acts) check(path string) error {
	switch {
	case s.yes && s.preview:
		return usagef("`%s` takes --yes or --preview, not both", path)
	case s.yes && (strings.TrimSpace(s.reason) == "" || strings.TrimSpace(s.by) == ""):
		return usagef("`%s --yes` needs --reason TEXT and --by NAME: both stand in the audit", path)
	}
	return nil
}

// needsReason refuses an act that ends what others go by, and says not why.
func needsReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return usagef("--reason TEXT is missing: say why, it stands in the audit")
	}
	return nil
}

func (s *acts) query() url.Values {
	if s.yes {
		return nil
	}
	return url.Values{"dry_run": {"true"}}
}

// act makes the call of a command that previews unless it is told --yes, and shows the answer.
func act[T any](a *App, c *cobra.Command, how acts, call api.Call, show func(T)) error {
	if err := how.check(c.CommandPath()); err != nil {
		return err
	}
	call.Query = how.query()
	return ask(a, c, call, show)
}

// ask makes one call to the coordinator, and shows the answer, or prints it as JSON.
func ask[T any](a *App, c *cobra.Command, call api.Call, show func(T)) error {
	client, _, err := a.coordinator(c)
	if err != nil {
		return err
	}
	var answer T
	if _, err := client.Do(c.Context(), call, &answer); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	show(answer)
	return nil
}
