package coordinator_test

import (
	"net/http"
	"testing"

	"tranche/allocation"
)

// A routes table reaches every region, whole, and the coordinator reads labels by it as the nodes do. If this fails a node
// charges an endpoint to other budgets than its operator was shown.
func TestRoutesAreCarried(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	table := map[string]any{"routes": []map[string]string{{"method": "POST", "path": "/v1/chat", "capability": "model"}, {"path": "/v1/exports/*", "capability": "export"}}}
	dry := w.must(r, http.StatusOK, "PUT", "/v1/routes?dry_run=true", table)
	if dry["dry_run"] != true || dry["version"] != 0.0 || len(dry["added"].([]any)) != 2 {
		t.Errorf("%v", dry)
	}
	if got := w.must(r, http.StatusOK, "GET", "/v1/routes", nil); len(got["routes"].([]any)) != 0 {
		t.Errorf("a dry run changed %v", got)
	}
	if got := w.must(r, http.StatusOK, "PUT", "/v1/routes", table); got["version"] != 1.0 || len(got["routes"].([]any)) != 2 {
		t.Errorf("%v", got)
	}
	if got := w.must(r, http.StatusOK, "PUT", "/v1/routes", table); got["version"] != 1.0 || got["added"] != nil {
		t.Errorf("what says the same was written: %v", got)
	}
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
		d := f.documents[allocation.DocumentRef{Kind: allocation.KindRoutes, Name: allocation.NameRoutes}]
		if known, err := d.Routes(); err != nil || known.Complete(allocation.Labels{"method": "POST", "path": "/v1/chat"})["capability"] != "model" {
			t.Errorf("%s knows %+v, %v", f.name, known, err)
		}
	}
	match := func(method, path string) any {
		got := w.must(r, http.StatusOK, "POST", "/v1/routes/match", map[string]string{"method": method, "path": path})
		if route, ok := got["route"].(map[string]any); ok {
			return route["capability"]
		}
		return nil
	}
	if match("POST", "/v1/chat") != "model" || match("GET", "/v1/chat") != nil || match("", "/v1/exports/a/b") != "export" {
		t.Error("the table is read otherwise than declared")
	}
	wrong := map[string]any{"routes": []map[string]string{{"path": "v1", "capability": "a"}}}
	if got := w.must(r, http.StatusUnprocessableEntity, "PUT", "/v1/routes", wrong); got["field"] != "routes[0].path" {
		t.Errorf("%v", got)
	}
	if got := w.must(r, http.StatusOK, "PUT", "/v1/routes", map[string]any{"routes": []any{}}); got["version"] != 2.0 || len(got["removed"].([]any)) != 2 {
		t.Errorf("%v", got)
	}
}
