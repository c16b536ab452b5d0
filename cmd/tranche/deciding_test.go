package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
)

// firstFiveMinutes runs each command of that section as the page prints it, on a real deployment in the state that the page speaks
// of. A command that fails at such a moment costs the minutes that the page is for.
func (d *drilled) firstFiveMinutes() {
	d.t.Helper()
	const operator = "operator-secret-0123456789"
	gateways := filepath.Join(d.Dir, "us-east.gateways")
	text := "ops " + operator + " operator\n" + stage.Edge1 + " " + d.Gateways[stage.Edge1] + "\n" + stage.Edge2 + " " + d.Gateways[stage.Edge2] + "\n"
	if err := os.WriteFile(gateways, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	budget := fixed("acme/model", 100, "acme", allocation.Window{Every: 3600})
	budget.Match["capability"] = "model"
	d.declare(budget)
	d.untilHeld("acme/model", map[string]int64{"us-east": 60, "eu-west": 40})
	file := filepath.Join(d.t.TempDir(), "acme-model.yaml")
	yaml := "budget: acme/model\nunit: requests\nlimit: 120\nwindow: {every: 1h}\nmatch: {tenant: acme, capability: model}\nallocation: {policy: fixed, weights: {us-east: 3, eu-west: 2}}\n"
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.t.Setenv("TRANCHE_COORDINATOR", d.Coordinators[0].Address)
	d.t.Setenv("TRANCHE_TOKEN", d.AdminToken)
	d.t.Setenv("TRANCHE_NODE", d.Regions["us-east"].Nodes[0].Address)
	d.t.Setenv("TRANCHE_NODE_TOKEN", operator)
	if status, printed := inProcess("keys", "issue", "acme", "--tenant", "acme", "--capability", "export"); status != 0 {
		d.t.Fatal(printed)
	}
	err := stage.Until(d.t.Context(), progressWait, "the node takes the operator's token", func() (bool, error) {
		status, _ := inProcess("check", "tenant=acme", "capability=model")
		return status == 0, nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	block := ""
	lines := commandLines(section(d.t, read(d.t, docs+"deciding.md"), "The first five minutes"))
	if len(lines) < 15 {
		d.t.Fatalf("only %d commands were found; the search is broken", len(lines))
	}
	for _, line := range lines {
		if strings.Contains(line, "--demo") {
			continue // a test of its own runs it
		}
		line = strings.NewReplacer("RECEIPT", d.receipt(), "acme-model.yaml", file, " ID ", " "+block+" ").Replace(line)
		var args []string
		for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
			args = append(args, m[1]+m[2])
		}
		status, printed := inProcess(args[1:]...)
		if status != 0 && !(status == 3 && (args[1] == "status" || args[1] == "check")) { // which look, and see that not all is well
			d.t.Errorf("%s: %d %s", line, status, printed)
		}
		if id := regexp.MustCompile(`b-[0-9a-f]{12}`).FindString(printed); id != "" {
			block = id
		}
	}
}

// receipt is that of a refusal; the refused request asks for more than there can be.
func (d *drilled) receipt() string {
	d.t.Helper()
	node, err := d.Gateway(stage.Edge1, d.Regions["us-east"].Nodes[0])
	if err != nil {
		d.t.Fatal(err)
	}
	status, header, body, err := node.Send(d.t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/admit", Body: map[string]any{
		"labels": map[string]string{"tenant": "acme", "capability": "model"}, "costs": map[string]int64{"requests": 5000}, "admission_id": "refused-at-launch",
	}})
	receipt := header.Get("Tranche-Receipt")
	if err != nil || status < 400 || receipt == "" {
		d.t.Fatalf("%d %v: %s", status, err, body)
	}
	return receipt
}

// The page's tables name every cause that a refusal can be classified as, and nothing else.
func TestDecidingNamesEveryCause(t *testing.T) {
	text := section(t, read(t, docs+"deciding.md"), "The first five minutes")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
		if m[1] != "cause" && !strings.Contains(read(t, docs+"explain.md"), "| `"+m[1]+"` |") {
			t.Errorf("there is no cause %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section(t, read(t, docs+"explain.md"), "What it says"), -1) {
		if m[1] != "none" && !strings.Contains(text, "| `"+m[1]+"` |") {
			t.Errorf("the page does not say what to do about %s", m[1])
		}
	}
}
