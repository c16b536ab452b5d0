package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/drill"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/regional/postgres/cluster/clustertest"
)

// Whoever tries the drill first sees every promise kept, on real parts, with a record of it, and nothing is left.
func TestDrillByCommand(t *testing.T) {
	out, d := filepath.Join(t.TempDir(), "record"), demo{dir: clustertest.Dir(t)}
	t.Setenv("TMPDIR", d.dir)
	status, printed := inProcess("drill", "leaked-key", "--demo", "--out", out, "--by", "kim")
	if status != 0 || !strings.Contains(printed, "every promise was kept") {
		t.Fatalf("%d %s", status, printed)
	}
	r := readRecord(t, out)
	var names []string
	for _, s := range r.Steps {
		names = append(names, s.Step)
	}
	if want := []string{"keys", "burst", "protected", "ceiling", "revoked", "surge", "essential", "books", "clean up"}; !slices.Equal(names, want) {
		t.Errorf("steps %v", names)
	}
	if r.Budget.ProtectedLeft != r.Budget.Protected || r.Budget.Exhausted == "" || r.Routes["economy"] == 0 || r.Routes["preferred"] == 0 {
		t.Errorf("%+v, routes %v", r.Budget, r.Routes)
	}
	if r.Refused["batch"]["deferred"] == 0 || r.Refused["interactive"]["only_protected_left"] == 0 {
		t.Errorf("refused %v", r.Refused)
	}
	if len(r.Nodes) != 4 || len(r.Revoked) != 4 || r.Revoked[3].AfterMS == nil || len(r.Undone) != 4 || len(r.Left) != 0 || r.Surge.Admitted == 0 || r.By != "kim" {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(out + ".md")
	if err != nil || strings.Contains(string(text), "tranche_key_") || !strings.Contains(string(text), r.Keys[0].Fingerprint) {
		t.Errorf("%v: %s", err, text)
	}
	d.nothingLeft(t)
}

func readRecord(t *testing.T, name string) (r drill.Record) {
	t.Helper()
	text, err := os.ReadFile(name + ".json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drilled is a deployment on which drills run, as processes of their own.
type drilled struct {
	*theatre
	admin *api.Client
}

// A drill on a deployment that breaks a promise says which, and ends with another status; one that is interrupted puts
// everything back; and a tenant that is not marked is never touched. Whoever relies on drills relies on these.
func TestDrillsThatGoWrong(t *testing.T) {
	s, err := stage.Start(t.Context(), stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, Unreachable: 2 * time.Second})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := s.Admin(0)
	if err != nil {
		t.Fatal(err)
	}
	d := &drilled{&theatre{s, t}, admin}
	for _, tenant := range []string{"rehearsal", "interrupted", "unheard"} {
		d.synthetic(tenant)
	}
	d.refusesOthers()
	d.firstFiveMinutes()
	d.interrupt("interrupted")
	d.breaks("unheard")
}

// synthetic declares the budgets of a tenant for drills, in a period that does not end, and waits until both regions hold them.
func (d *drilled) synthetic(tenant string) {
	d.t.Helper()
	list, err := manifest.Load(strings.NewReader(drill.Budgets(tenant, []string{"us-east", "eu-west"})), "-")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, b := range list {
		b.Budget.Window = allocation.Window{Once: &allocation.Once{From: allocation.At(time.Now()), Until: allocation.Never}}
		d.declare(b.Budget)
		half := b.LimitOrZero() / 2
		d.untilHeld(b.Name, map[string]int64{"us-east": half, "eu-west": half})
	}
}

// run starts a drill; its output is read while it runs.
func (d *drilled) run(tenant string, more ...string) (cmd *exec.Cmd, out, log string) {
	d.t.Helper()
	dir := d.t.TempDir()
	out, log = filepath.Join(dir, "record"), filepath.Join(dir, "log")
	args := []string{
		"drill", "leaked-key", "--tenant", tenant, "--capability", drill.Expendable, "--essential", drill.Precious, "--out", out,
		"--rate", "100", "--coordinator", d.Coordinators[0].Address, "--token", d.AdminToken,
	}
	cmd, err := process.Command(nil, append(args, more...)...)
	if err != nil {
		d.t.Fatal(err)
	}
	file, err := os.Create(log)
	if err != nil {
		d.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = file.Close() })
	return cmd, out, log
}

// before is the address of the coordinator for a drill to which something happens right before its first call of a kind: a drill
// goes on while a test that only watches it is not looking. The call itself is made only if meanwhile says so.
func (d *drilled) before(method, path string, meanwhile func() bool) (address string) {
	d.t.Helper()
	to, err := url.Parse(d.Coordinators[0].Address)
	if err != nil {
		d.t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		goOn := true
		if r.Method == method && strings.Contains(r.URL.Path, path) {
			once.Do(func() { goOn = meanwhile() })
		}
		if goOn {
			forward.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then it is noticed that the drill hangs up
		<-r.Context().Done()
	}))
	d.t.Cleanup(server.Close)
	return server.URL
}

// asBefore fails unless the limit is what it was, and no key of a drill is valid.
func (d *drilled) asBefore(tenant string) {
	d.t.Helper()
	var b coordinator.BudgetAnswer
	if _, err := d.admin.Do(d.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/budgets/" + tenant + "/" + drill.Expendable}, &b); err != nil || b.Budget.LimitOrZero() != 300 {
		d.t.Errorf("the limit is %d, %v", b.Budget.LimitOrZero(), err)
	}
	var keys coordinator.KeysList
	if _, err := d.admin.Do(d.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/keys"}, &keys); err != nil {
		d.t.Fatal(err)
	}
	for _, k := range keys.Keys {
		if k.Tenant == tenant && k.State != "revoked" {
			d.t.Errorf("key %s is %s", k.Name, k.State)
		}
	}
}

// refusesOthers: a drill of a tenant that is not synthetic, or shares a budget that is not, changes nothing.
func (d *drilled) refusesOthers() {
	d.t.Helper()
	fits := []string{"--capability", drill.Expendable, "--essential", drill.Precious, "--coordinator", d.Coordinators[0].Address, "--token", d.AdminToken}
	refused := func(tenant, words string) {
		d.t.Helper()
		status, printed := inProcess(append([]string{"drill", "leaked-key", "--tenant", tenant}, fits...)...)
		if status != 2 || !strings.Contains(printed, words) {
			d.t.Errorf("%s: %d %s", tenant, status, printed)
		}
	}
	refused("acme", "no budget applies to tenant acme")
	d.declare(fixed("acme/requests", 1000, "acme", allocation.Window{Every: 3600}))
	refused("acme", "charged to acme/requests, which is not marked")
	everybody := fixed("everybody", 1000, "", allocation.Window{Every: 3600})
	everybody.Match = map[string]string{"capability": drill.Expendable}
	d.declare(everybody)
	refused("rehearsal", "charged to everybody, which is not marked")
	if _, err := d.admin.Do(d.t.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/budgets/everybody", Header: http.Header{"If-Match": {`"1"`}}}, nil); err != nil {
		d.t.Fatal(err)
	}
	var keys coordinator.KeysList
	if _, err := d.admin.Do(d.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/keys"}, &keys); err != nil || len(keys.Keys) != 0 {
		d.t.Errorf("a drill that was refused left %d keys, %v", len(keys.Keys), err)
	}
}

// interrupt ends a drill as Ctrl-C does, while the limit is another and the keys are valid.
func (d *drilled) interrupt(tenant string) {
	d.t.Helper()
	started := make(chan *exec.Cmd, 1)
	revokes := d.before(http.MethodPost, "/revoke", func() bool {
		if err := (<-started).Process.Signal(os.Interrupt); err != nil {
			d.t.Error(err)
		}
		return false
	})
	cmd, out, log := d.run(tenant, "--coordinator", revokes)
	started <- cmd
	err := cmd.Wait()
	if text, _ := os.ReadFile(log); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(text), "ceiling    kept") {
		d.t.Errorf("it ended with %v: %s", err, text)
	}
	if r := readRecord(d.t, out); r.Kept || r.Failure == "" || len(r.Left) != 0 || len(r.Undone) < 3 {
		d.t.Errorf("%+v", r)
	}
	d.asBefore(tenant)
}

// breaks: a region that is cut off in the middle hears neither of the limit nor of the revocation.
func (d *drilled) breaks(tenant string) {
	d.t.Helper()
	lowers := d.before(http.MethodPut, "/v1/budgets/", func() bool {
		d.Regions["eu-west"].Cut()
		return true
	})
	cmd, out, log := d.run(tenant, "--patience", "6s", "--coordinator", lowers) // us-east must hear within it, on a slow machine, too
	err := cmd.Wait()
	if text, _ := os.ReadFile(log); cmd.ProcessState.ExitCode() != 3 || !strings.Contains(string(text), "protected  kept") {
		d.t.Errorf("it ended with %v: %s", err, text)
	}
	r := readRecord(d.t, out)
	for _, s := range r.Steps {
		if s.Step == "revoked" && (s.Kept || len(s.Broken) != 1 || !strings.Contains(s.Broken[0], "eu-west-1")) {
			d.t.Errorf("%+v", s)
		}
		if s.Step == "essential" && !s.Kept { // it goes on alone
			d.t.Errorf("%+v", s)
		}
	}
	if r.Kept || len(r.Revoked) != 2 || r.Revoked[0].AfterMS != nil || r.Revoked[1].AfterMS == nil {
		d.t.Errorf("%+v", r)
	}
	d.asBefore(tenant)
	d.Regions["eu-west"].Heal()
}
