package regional

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tranche/allocation"
	"tranche/regional/openapitest"
)

var document = sync.OnceValues(func() (*openapitest.Document, error) { return openapitest.Parse(openAPI()) })

// checkDocumented holds every answer that the tests of the API get against the OpenAPI document.
func checkDocumented(t testing.TB, method, path, body string, got *httptest.ResponseRecorder) {
	t.Helper()
	d, err := document()
	if err == nil {
		err = d.Check(openapitest.Answer{
			Method: method, Path: path, Status: got.Code, Header: got.Header(), Body: got.Body.Bytes(), Request: []byte(body),
		})
	}
	if err != nil {
		t.Errorf("not as the OpenAPI document has it: %v", err)
	}
}

// If this failed, a caller that is generated from the document could not reach some route, or would lack a field of a call.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	w := newAPIWorld(t)
	var served []string
	for _, r := range w.routes {
		path := r.path
		if path == decisionsPath {
			path += "{admission_id}"
		}
		served = append(served, path)
	}
	slices.Sort(served)
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(served, d.Paths()) {
		t.Errorf("served %v\ndocumented %v; add the route to operations in openapi.go", served, d.Paths())
	}
	for i := range fieldNames {
		if (&schemas{}).requestField(1<<i) == nil {
			t.Errorf("no schema for %s", fieldNames[i])
		}
	}
	r := w.call("GET", openAPIPath, "", "Authorization: ")
	wantStatus(t, r, 200, `"openapi": "3.1.0"`, `"not_home"`)
}

// If this failed, the tests of the API could not find out that an answer is other than the document says.
func TestOpenAPICheckCanFail(t *testing.T) {
	w := newAPIWorld(t)
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	r := w.admit("a", `{"labels":{"tenant":"acme"},"costs":{"requests":61}}`)
	good := openapitest.Answer{Method: "POST", Path: "/v1/admit", Status: r.StatusCode, Header: r.Header, Body: []byte(bodyOf(t, r))}
	if err := d.Check(good); err != nil || good.Status != 429 {
		t.Fatal(good.Status, err)
	}
	edit := func(from, to string) func(*openapitest.Answer) {
		return func(a *openapitest.Answer) {
			if !strings.Contains(string(a.Body), from) {
				t.Fatalf("%s has no %s", a.Body, from)
			}
			a.Body = []byte(strings.Replace(string(a.Body), from, to, 1))
		}
	}
	for name, change := range map[string]func(*openapitest.Answer){
		"a path":            func(a *openapitest.Answer) { a.Path = "/v1/other" },
		"a status":          func(a *openapitest.Answer) { a.Status = 418 },
		"a method":          func(a *openapitest.Answer) { a.Method = "PUT" },
		"a header":          func(a *openapitest.Answer) { a.Header.Set("X-New", "1") },
		"a lacking header":  func(a *openapitest.Answer) { a.Header.Del("Cache-Control") },
		"a header's form":   func(a *openapitest.Answer) { a.Header.Set("Retry-After", "0") },
		"a content type":    func(a *openapitest.Answer) { a.Header.Set("Content-Type", "application/json") },
		"no json":           edit(`{`, `<`),
		"a reason":          edit(`"reason":"region_share_spent"`, `"reason":"new"`),
		"a problem type":    edit(typeQuota, "urn:new"),
		"a member":          edit(`"retryable"`, `"new":1,"retryable"`),
		"a member's member": edit(`"generation"`, `"new":1,"generation"`),
		"a lacking member":  edit(`"replayed":false,`, ``),
		"a kind":            edit(`"replayed":false`, `"replayed":"no"`),
		"a time":            edit(`"decided_at":"2`, `"decided_at":"x2`),
		"a fraction":        edit(`"requested":61`, `"requested":61.5`),
	} {
		bad := good
		bad.Header = good.Header.Clone()
		change(&bad)
		if d.Check(bad) == nil {
			t.Errorf("passes with another %s", name)
		}
	}
	fine := openapitest.Answer{Method: "POST", Path: "/v1/admit", Status: 200, Header: r.Header.Clone(), Body: good.Body, Request: []byte(`{"labels":{},"new":1}`)}
	fine.Header.Set("Content-Type", "application/json")
	if d.Check(fine) == nil {
		t.Error("passes a request that the document does not have")
	}
	if _, err := openapitest.Parse([]byte(`{"openapi":"3.0.0"}`)); err == nil {
		t.Error("takes another version")
	}
}

// If this failed, the document would lack a problem type, a reason or a status that allocation's table has.
func TestOpenAPIHasAllAnswers(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]struct{ Responses map[string]any }
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []string }
			}
		}
	}
	if err := json.Unmarshal(openAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	answer, admit := doc.Components.Schemas["Answer"].Properties, doc.Paths["/v1/admit"]["post"].Responses
	for _, a := range allocation.Answers() {
		if !slices.Contains(answer["reason"].Enum, string(a.Reason)) || !slices.Contains(answer["type"].Enum, problemType(a.Reason)) {
			t.Errorf("lacks %s or its type %s", a.Reason, problemType(a.Reason))
		}
		if admit[strconv.Itoa(a.Status)] == nil {
			t.Errorf("lacks status %d", a.Status)
		}
	}
	for kind := range faultAnswers {
		if !slices.Contains(doc.Components.Schemas["Fault"].Properties["type"].Enum, typeOurs+string(kind)) {
			t.Errorf("lacks the fault %s", kind)
		}
	}
}
