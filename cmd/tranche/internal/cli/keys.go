package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) keysCommand() *cobra.Command {
	return parent("keys", "Issue, rotate and revoke callers' keys", "  tranche keys issue acme --tenant acme --capability export --for 90d",
		a.issueKeyCommand(), a.listKeysCommand(), a.showKeyCommand(), a.rotateKeyCommand(), a.revokeKeyCommand(), a.fingerprintCommand())
}

// duration is a flag as the API takes durations: 90s, 2h, 30d.
func duration(flag, text string) (d allocation.Duration, err error) {
	if text == "" {
		return 0, nil
	}
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return 0, usagef("--%s %q: %w", flag, text, err)
	}
	return d, nil
}

func (a *App) issueKeyCommand() *cobra.Command {
	var q coordinator.KeyRequest
	var lasts, evidence, file string
	c := &cobra.Command{
		Use: "issue NAME", Short: "Issue a key; its text is shown only now", Args: exactly("NAME"),
		Long: `Issue a key for one tenant, with the capabilities that it may ask for. The text is shown once; what is stored is a keyed
hash. The name scopes admission ids and stays through rotations; the fingerprint is how everybody speaks of this key.`,
		Example: "  tranche keys issue acme --tenant acme --capability export,search --for 90d --key-file acme.key",
		RunE: func(c *cobra.Command, args []string) (err error) {
			q.Name = args[0]
			if q.For, err = duration("for", lasts); err != nil {
				return err
			}
			if q.MaxEvidenceAge, err = duration("max-evidence-age", evidence); err != nil {
				return err
			}
			return a.makeKey(c, api.Call{Method: http.MethodPost, Path: "/v1/keys", Body: q}, file, "issued")
		},
	}
	f := c.Flags()
	f.StringVar(&q.Tenant, "tenant", "", "`TENANT`: the only value of the label tenant that the key may send")
	f.StringSliceVar(&q.Capabilities, "capability", nil, "`NAMES` of the label capability that the key may send, with commas; * for all")
	f.BoolVar(&q.Essential, "essential", false, "the key may say that a request is essential")
	f.StringVar(&lasts, "for", "", "`DURATION` after which it expires, such as 90d; without it it does not")
	f.StringVar(&evidence, "max-evidence-age", "", "`DURATION` for which a region that is cut off takes it, such as 1h; without it as long as it holds permits")
	f.StringVar(&file, "key-file", "", "`FILE` to write the key to (mode 0600) instead of printing it")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) rotateKeyCommand() *cobra.Command {
	var overlap, lasts, file string
	c := &cobra.Command{
		Use: "rotate NAME", Short: "Issue the next key of a name; the one before it ends after --overlap", Args: exactly("NAME"),
		Example: "  tranche keys rotate acme --overlap 24h --key-file acme-2.key",
		RunE: func(c *cobra.Command, args []string) (err error) {
			var q coordinator.RotateRequest
			if q.Overlap, err = duration("overlap", overlap); err != nil {
				return err
			}
			if q.For, err = duration("for", lasts); err != nil {
				return err
			}
			return a.makeKey(c, api.Call{Method: http.MethodPost, Path: "/v1/keys/" + url.PathEscape(args[0]) + "/rotate", Body: q}, file, "rotated")
		},
	}
	f := c.Flags()
	f.StringVar(&overlap, "overlap", "24h", "`DURATION` for which both are valid; 0s ends the old one at once")
	f.StringVar(&lasts, "for", "", "`DURATION` after which the new one expires; without it as long as the one before it")
	f.StringVar(&file, "key-file", "", "`FILE` to write the key to (mode 0600) instead of printing it")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// makeKey makes a call that is answered with a new key, and shows it.
func (a *App) makeKey(c *cobra.Command, call api.Call, file, verb string) error {
	client, _, err := a.coordinator(c)
	if err != nil {
		return err
	}
	var k coordinator.KeyAnswer
	if _, err := client.Do(c.Context(), call, &k); err != nil {
		return err
	}
	if file != "" {
		if err := writeSecret(file, k.Key); err != nil {
			return fmt.Errorf("the key is made, but could not be written: %w; revoke it with `tranche keys revoke %s` and try again", err, k.Fingerprint)
		}
		k.Key = ""
	}
	if a.json {
		return a.printJSON(k)
	}
	a.printf("key %s %s for tenant %s: fingerprint %s%s\n", k.Name, verb, k.Tenant, k.Fingerprint, untilWords(k))
	for _, old := range k.Replaces {
		a.printf("the one before it, %s, ends after the overlap\n", old)
	}
	if file != "" {
		a.printf("it is in %s\n", file)
	} else {
		a.printf("the key, shown only now: %s\n", k.Key)
	}
	return a.showEnforced(c.Context(), client, k.Number, map[string]string{"tenant": k.Tenant})
}

func untilWords(k coordinator.KeyAnswer) string {
	if k.Until == nil {
		return ", it does not expire"
	}
	return ", until " + k.Until.String()
}

func (a *App) listKeysCommand() *cobra.Command {
	return a.readKeys("list", "List keys by name, never their texts", "  tranche keys list", exactly(), func([]string) string { return "/v1/keys" })
}

func (a *App) showKeyCommand() *cobra.Command {
	return a.readKeys("show KEY", "Show the keys of a name, or the key of a fingerprint", "  tranche keys show acme", exactly("NAME-OR-FINGERPRINT"),
		func(args []string) string { return "/v1/keys/" + url.PathEscape(args[0]) })
}

func (a *App) readKeys(use, short, example string, takes cobra.PositionalArgs, path func([]string) string) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: takes, Example: example,
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			if len(args) > 0 && allocation.LooksLikeKey(args[0]) {
				return usagef("this is a key itself; give its name or its fingerprint, %s", allocation.Fingerprint(args[0]))
			}
			var list coordinator.KeysList
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: path(args)}, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			a.showKeys(list.Keys)
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showKeys(list []coordinator.KeyAnswer) {
	var rows [][]any
	for _, k := range list {
		until, used := "never", "-"
		if k.Until != nil {
			until = k.Until.String()
		}
		if k.LastUsed != nil {
			used = a.ago(k.LastUsed)
		}
		scopes := strings.Join(k.Capabilities, ",")
		if k.Essential {
			scopes += " essential"
		}
		if k.MaxEvidenceAge != 0 {
			scopes += " evidence of at most " + k.MaxEvidenceAge.String()
		}
		rows = append(rows, []any{k.Name, k.Fingerprint, k.Tenant, scopes, k.State, until, used, k.By})
	}
	a.table([]string{"name", "fingerprint", "tenant", "capabilities", "state", "expires", "last used", "by"}, rows)
}

func (a *App) revokeKeyCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "revoke KEY", Short: "End a key for good, and show where that is enforced", Args: exactly("NAME-OR-FINGERPRINT"),
		Long: `End the key of a fingerprint, or all valid keys of a name, for good: a revoked key is never valid again, also when etcd is
restored from a backup. What was admitted with it can still be settled and released.`,
		Example: "  tranche keys revoke fp_0f3a9c61d2b84e75a610 --reason 'leaked in a log'",
		RunE: func(c *cobra.Command, args []string) error {
			if err := needsReason(reason); err != nil {
				return err
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			name := args[0]
			if allocation.LooksLikeKey(name) {
				name = allocation.Fingerprint(name)
			}
			var list coordinator.KeysList
			call := api.Call{Method: http.MethodPost, Path: "/v1/keys/" + url.PathEscape(name) + "/revoke", Body: coordinator.EndRequest{Reason: reason}}
			if _, err := client.Do(c.Context(), call, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			for _, k := range list.Keys {
				a.printf("key %s of tenant %s, fingerprint %s, is revoked\n", k.Name, k.Tenant, k.Fingerprint)
			}
			last := list.Keys[len(list.Keys)-1]
			return a.showEnforced(c.Context(), client, last.Number, map[string]string{"tenant": last.Tenant})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`TEXT`: why; it stands in the audit")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// enforcedWithin is how long the commands wait for the regions in contact.
const enforcedWithin = 5 * time.Second

// showEnforced waits until the regions in contact enforce a change, and says where it is enforced.
func (a *App) showEnforced(ctx context.Context, client *api.Client, number int64, labels map[string]string) error {
	var pairs []string
	for _, name := range sortedNames(labels) {
		pairs = append(pairs, name+"="+labels[name])
	}
	query := url.Values{"wait_ms": {strconv.FormatInt(enforcedWithin.Milliseconds(), 10)}, "labels": {strings.Join(pairs, ",")}}
	var e coordinator.EnforcedAnswer
	call := api.Call{Method: http.MethodGet, Path: "/v1/enforced/" + strconv.FormatInt(number, 10), Query: query}
	if _, err := client.Do(ctx, call, &e); err != nil {
		return fmt.Errorf("it is done, but where it is enforced could not be read: %w", err)
	}
	for _, r := range e.Regions {
		a.printf("%s\n", enforcedWords(r))
	}
	return nil
}

func enforcedWords(r coordinator.EnforcedRegion) string {
	switch {
	case r.Enforced && r.AfterMS != nil:
		return fmt.Sprintf("%s: enforced after %d ms", r.Region, *r.AfterMS)
	case r.Enforced:
		return r.Region + ": enforced"
	case r.Cause == "unreachable" && len(r.AtMost) > 0:
		b := r.AtMost[0]
		return fmt.Sprintf("%s: unreachable, at most %d %s more (of %s, in this period; with those ahead %d, until %s)",
			r.Region, b.Now, b.Unit, b.Budget, allocation.SumUp(b.Now, b.Ahead), b.Until)
	case r.Cause == "unreachable":
		return r.Region + ": unreachable, and no plain budget bounds what it may still admit"
	case r.Cause == "never called":
		return r.Region + ": has never called, and admits nothing"
	}
	return fmt.Sprintf("%s: not yet (%s)", r.Region, cmp.Or(r.Cause, "waiting"))
}

func (a *App) fingerprintCommand() *cobra.Command {
	return &cobra.Command{
		Use: "fingerprint", Short: "Show the fingerprint of a key that is given on standard input", Args: exactly(),
		Long: `Show the fingerprint of a key, one of ours or an external one. It is read from standard input, so that it stands in no
process list. The fingerprint is no secret: use it to block an external key, or to find one of ours.`,
		Example: "  tranche keys fingerprint < suspect.key",
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), maxSecret))
			if err != nil {
				return fmt.Errorf("read a key: %w", err)
			}
			key := strings.TrimSpace(string(text))
			if key == "" || strings.ContainsAny(key, "\r\n") {
				return usagef("give one line on standard input: the key")
			}
			a.printf("%s\n", allocation.Fingerprint(key))
			return nil
		},
	}
}
