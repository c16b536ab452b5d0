package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// vault is a deployment in which keys are tried: two regions of one node each, on a real etcd and two real Postgres.
type vault struct {
	*theatre
	secrets []string // none of them may be seen anywhere
	ops     string   // an operator's token of the nodes
}

// vaultUnheard is how long a region may be silent there: longer than a slow machine keeps one so, since most tests need both in contact.
const vaultUnheard = 6 * time.Second

func openVault(t *testing.T) *vault {
	t.Helper()
	s, err := stage.Start(t.Context(), stage.Options{
		Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, EtcdMembers: 1, Unreachable: vaultUnheard,
	})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	v := &vault{theatre: &theatre{s, t}, ops: "operator-secret-0123456789"}
	v.secrets = []string{s.AdminToken, s.Gateways[stage.Edge1], s.Gateways[stage.Edge2], v.ops}
	v.declare(fixed("vault/requests", 10_000, "acme", allocation.Window{Calendar: "day"})) // of which some are ahead
	for region := range s.Regions {
		v.tokens(region, s.Gateways[stage.Edge1])
	}
	return v
}

// tokens writes the token file of a region's nodes: edge-1 with some tokens, and an operator.
func (v *vault) tokens(region string, edge ...string) {
	v.t.Helper()
	text := "ops " + v.ops + " operator\n"
	for _, token := range edge {
		text += stage.Edge1 + " " + token + "\n"
	}
	if err := os.WriteFile(filepath.Join(v.Dir, region+".gateways"), []byte(text), 0o600); err != nil {
		v.t.Fatal(err)
	}
}

// run runs a command against the coordinator, and returns what it printed.
func (v *vault) run(want int, args ...string) string {
	v.t.Helper()
	status, printed := inProcess(append(args, "--coordinator", v.Coordinators[0].Address, "--token", v.AdminToken)...)
	if status != want {
		v.t.Fatalf("%v ended with %d, not %d: %s", args, status, want, printed)
	}
	return printed
}

// key makes a key by a command that writes it to a file.
func (v *vault) key(args ...string) (key, printed string) {
	v.t.Helper()
	file := filepath.Join(v.t.TempDir(), "key")
	printed = v.run(0, append(args, "--key-file", file)...)
	text, err := os.ReadFile(file)
	if err != nil {
		v.t.Fatal(err)
	}
	key = strings.TrimSpace(string(text))
	_, secret, _ := strings.Cut(strings.TrimPrefix(key, "tranche_key_"), "_")
	v.secrets = append(v.secrets, secret)
	return key, printed
}

// ask makes a call to a region's node with a secret.
func (v *vault) ask(region, secret, path, id, body string) (int, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.Regions[region].Nodes[0].Address+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Admission-Id", id)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// undecided is an answer by which nobody has decided: a node whose database is slow for a moment gives it.
var undecided = regexp.MustCompile(`"reason":"(database_unavailable|overloaded|outcome_unknown)"`)

// decided is ask, again by the same id until somebody has decided.
func (v *vault) decided(region, secret, path, id, body string) (status int, text string) {
	v.t.Helper()
	for range truthTries {
		if status, text = v.ask(region, secret, path, id, body); status != http.StatusServiceUnavailable || !undecided.MatchString(text) {
			break
		}
		<-time.After(retryEvery)
	}
	return status, text
}

const exporting = `{"labels":{"tenant":"acme","capability":"export"}}`

// is fails unless a spend with a key is answered so. What could not be decided in time is asked again, by the same id.
func (v *vault) is(region, key, id, body string, status int, reason string) {
	v.t.Helper()
	ask := v.decided
	if status == http.StatusServiceUnavailable {
		ask = v.ask
	}
	if got, text := ask(region, key, "/v1/admit", id, body); got != status || !strings.Contains(text, `"reason":"`+reason+`"`) {
		v.t.Errorf("%s: %d, want %d %s: %s", region, got, status, reason, text)
	}
}

// becomes waits until a spend with a key is answered so.
func (v *vault) becomes(region, key string, status int, reason string) {
	v.t.Helper()
	last := ""
	err := stage.Until(v.t.Context(), progressWait, fmt.Sprintf("%s answers %d %s", region, status, reason), func() (bool, error) {
		got, text := v.ask(region, key, "/v1/admit", fmt.Sprint("wait-", serial.Add(1)), exporting)
		last = text
		return got == status && strings.Contains(text, `"reason":"`+reason+`"`), nil
	})
	if err != nil {
		v.t.Fatalf("%v; the last answer: %s", err, last)
	}
}

func (v *vault) contains(text string, words ...string) {
	v.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			v.t.Errorf("it does not say %q: %s", w, text)
		}
	}
}

// A key from its issue to after a restore of etcd, on real processes: scopes, a rotation, a revocation while a region is cut
// off, a block that is made there, and an etcd that is taken back to before all of that.
func TestKeysOnRealProcesses(t *testing.T) {
	v := openVault(t)
	// A key counts its seconds in whole ones: one that was made in the databases' first second may seem older than they are.
	<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	first, printed := v.key("keys", "issue", "acme", "--tenant", "acme", "--capability", "export", "--for", "90d")
	v.contains(printed, "fingerprint "+allocation.Fingerprint(first), "us-east: enforced after", "eu-west: enforced after")
	for _, region := range []string{"us-east", "eu-west"} {
		v.is(region, first, "a", exporting, 200, "allow")
		v.is(region, first, "b", `{"labels":{"tenant":"acme","capability":"delete"}}`, 403, "scope_denied")
		v.is(region, first, "c", `{"labels":{"tenant":"globex","capability":"export"}}`, 403, "scope_denied")
		v.is(region, first+"0", "d", exporting, 401, "key_unknown")
		v.is(region, first, "held", `{"labels":{"tenant":"acme","capability":"export"},"op":"reserve"}`, 200, "allow")
	}
	brief, printed := v.key("keys", "issue", "brief", "--tenant", "acme", "--capability", "export", "--max-evidence-age", "2s")
	v.contains(printed, "eu-west: enforced after")
	v.contains(v.run(0, "keys", "list"), "export evidence of at most 2s")
	second, printed := v.key("keys", "rotate", "acme", "--overlap", "1h")
	v.contains(printed, "ends after the overlap")
	v.is("us-east", first, "a", exporting, 200, "allow") // both are valid, and are one credential: a replay
	v.is("us-east", second, "a", exporting, 200, "allow")

	kept := filepath.Join(t.TempDir(), "etcd")
	if err := v.KeepEtcd(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	v.Regions["eu-west"].Cut()
	v.unreachable("eu-west")
	for _, act := range [][]string{{"keys", "revoke", "acme"}, {"keys", "revoke", "acme", "--reason", " "}, {"unblock", "b-0f3a9c61d2b8"}, {"unblock", "b-0f3a9c61d2b8", "--node-only"}} {
		v.contains(v.run(2, act...), "--reason")
	}
	printed = v.run(0, "keys", "revoke", "acme", "--reason", "leaked")
	t.Log(printed)
	if !regexp.MustCompile(`us-east: enforced after \d+ ms\n`).MatchString(printed) || !regexp.MustCompile(`eu-west: unreachable, at most \d+ requests more`).MatchString(printed) {
		t.Errorf("the revocation says %s", printed)
	}
	for _, key := range []string{first, second} {
		v.is("us-east", key, "a", exporting, 401, "key_revoked") // at once, also a replay
		v.is("eu-west", key, "e", exporting, 200, "allow")       // it was not told
	}
	v.becomes("eu-west", brief, 503, "evidence_stale") // it may have been revoked since
	v.settles("us-east", first)
	v.exposed(first)

	// An operator cuts it off there, at the node.
	node, west := []string{"--node", v.Regions["eu-west"].Nodes[0].Address, "--node-token", v.ops, "--node-only"}, "eu-west"
	if status, printed := inProcess(append([]string{"block", "tenant=acme", "--for", "2h", "--reason", "leaked", "--by", "kim"}, node...)...); status != 0 {
		t.Fatal(printed)
	}
	v.is(west, first, "a", exporting, 403, "blocked")
	v.settles(west, first)
	v.exposes(first, true)
	v.Regions[west].Heal()
	id := v.merged()
	v.exposes(first, false)
	v.run(0, "unblock", id, "--reason", "it knows of the revocation")
	v.audited("key.revoke", "", "leaked")
	v.audited("unblock", id, "it knows of the revocation")
	v.becomes(west, first, 401, "key_revoked")
	v.becomes(west, brief, 200, "allow")
	v.run(2, "block", "tenant=globex", "--reason", "leak") // without an end
	v.run(0, "block", "tenant=globex", "--for", "2h", "--reason", "leak")

	// etcd goes back to before the revocation and the block.
	if err := v.TakeBackEtcd(t.Context(), kept, nil); err != nil {
		t.Fatal(err)
	}
	v.recalls()
	for _, region := range []string{"us-east", west} {
		v.is(region, second, "a", exporting, 401, "key_revoked")
	}
	v.unseen()
	v.barsWithoutDatabase(west, second)
	if err := v.Failure(); err != nil {
		t.Error(err)
	}
}

// barsWithoutDatabase: who is blocked, or whose key is revoked, hears so from a node that lost its database, and is not told to come
// back soon; whoever else asks hears that the database is away, also with a key that nobody knows.
func (v *vault) barsWithoutDatabase(region, revoked string) {
	v.t.Helper()
	if err := v.Regions[region].Postgres.Kill(); err != nil {
		v.t.Fatal(err)
	}
	gateway := v.Gateways[stage.Edge1]
	v.is(region, gateway, "away-1", `{"labels":{"tenant":"globex","capability":"export"}}`, 403, "blocked")
	v.is(region, revoked, "away-2", exporting, 401, "key_revoked")
	v.is(region, gateway, "away-3", exporting, 503, "database_unavailable")
	v.is(region, allocation.KeyText("nobody", strings.Repeat("0", 40)), "away-4", exporting, 503, "database_unavailable")
	if status, text := v.ask(region, gateway, "/v1/admit", "away-5", `{"labels":{"tenant":"globex"}}`); status != 403 || !strings.Contains(text, "as this node remembers it") || strings.Contains(text, "retry_after") || !strings.Contains(text, `"ledger_revision":0`) {
		v.t.Errorf("%d %s", status, text)
	}
	if status, text := v.ask(region, gateway, "/v1/settle", "held", `{"tenant":"globex","costs":{"requests":1}}`); status != 503 {
		v.t.Errorf("a settle of a blocked tenant is no refusal: %d %s", status, text)
	}
	if err := v.Regions[region].Postgres.StartAgain(v.t.Context()); err != nil {
		v.t.Fatal(err)
	}
	v.is(region, gateway, "away-1", `{"labels":{"tenant":"globex","capability":"export"}}`, 403, "blocked")
}

// unreachable waits until the coordinator says so.
func (v *vault) unreachable(region string) {
	v.t.Helper()
	err := stage.Until(v.t.Context(), progressWait, region+" is out of contact", func() (bool, error) {
		admin, err := v.Admin(0)
		if err != nil {
			return false, err
		}
		var report coordinator.StrandedReport
		_, err = admin.Do(v.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/stranded"}, &report)
		return len(report.Lines) > 0 && report.Lines[0].Region == region, err
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

// settles: what was admitted before the key was revoked, or its tenant blocked, is told to its end.
func (v *vault) settles(region, key string) {
	v.t.Helper()
	if status, text := v.decided(region, key, "/v1/settle", "held", `{"tenant":"acme","costs":{"requests":1}}`); status != 200 {
		v.t.Errorf("%s: a settle is answered %d %s", region, status, text)
	}
}

// merged waits until the coordinator lists the block that was made in the region.
func (v *vault) merged() (id string) {
	v.t.Helper()
	err := stage.Until(v.t.Context(), progressWait, "the coordinator knows of the block", func() (bool, error) {
		printed := v.run(0, "blocks")
		id = regexp.MustCompile(`b-[0-9a-f]{12}`).FindString(printed)
		return id != "" && strings.Contains(printed, "eu-west") && strings.Contains(printed, "kim (token ops)"), nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return id
}

// recalls waits until etcd knows again what the regions know: nobody may hear that the key is valid in between.
func (v *vault) recalls() {
	v.t.Helper()
	err := stage.Until(v.t.Context(), 2*progressWait, "etcd knows of the revocation and of the block again", func() (bool, error) {
		status, keys := inProcess("keys", "list", "--coordinator", v.Coordinators[0].Address, "--token", v.AdminToken)
		_, blocks := inProcess("blocks", "--coordinator", v.Coordinators[0].Address, "--token", v.AdminToken)
		return status == 0 && strings.Count(keys, "revoked") == 2 && strings.Count(keys, "valid") == 1 && strings.Contains(blocks, "tenant=globex"), nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

// unseen looks for the secrets where they would be found: logs, metrics, tables, and what etcd has stored.
func (v *vault) unseen() {
	v.t.Helper()
	places := map[string][]byte{}
	logs, err := filepath.Glob(filepath.Join(v.Dir, "*.log"))
	if err != nil || len(logs) == 0 {
		v.t.Fatal("there are no logs to look into", err)
	}
	for _, name := range logs {
		places[name], _ = os.ReadFile(name)
	}
	for region, r := range v.Regions {
		places["metrics of "+region] = v.get(r.Nodes[0].Address + "/metrics")
		places["tables of "+region] = v.tables(r.Database)
	}
	places["metrics of the coordinator"] = v.get(v.Coordinators[0].Address + "/metrics")
	err = filepath.WalkDir(v.Etcd.Dir(0), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			places[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		v.t.Fatal(err)
	}
	for place, text := range places {
		if len(text) == 0 && !strings.HasSuffix(place, ".log") {
			v.t.Errorf("%s holds nothing to look into", place)
		}
		for i, secret := range v.secrets {
			if len(secret) < 20 || bytes.Contains(text, []byte(secret)) {
				v.t.Errorf("%s holds secret %d", place, i)
			}
		}
	}
}

func (v *vault) get(url string) []byte {
	v.t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		v.t.Fatal(url, resp.StatusCode, err)
	}
	return text
}

// tables is every row of every table of a region's database.
func (v *vault) tables(url string) []byte {
	v.t.Helper()
	conn, err := pgx.Connect(v.t.Context(), url)
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.Close(v.t.Context())
	rows, _ := conn.Query(v.t.Context(), "select relname from pg_class where relnamespace = 'tranche'::regnamespace and relkind = 'r'")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) < 8 {
		v.t.Fatal(names, err)
	}
	var all bytes.Buffer
	for _, name := range names {
		rows, _ := conn.Query(v.t.Context(), "select t::text from tranche."+name+" as t")
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			v.t.Fatal(err)
		}
		all.WriteString(strings.Join(list, "\n"))
	}
	return all.Bytes()
}
