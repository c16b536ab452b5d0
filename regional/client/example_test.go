//go:build unix

package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"tranche/regional/client"
)

// In front of a handler of net/http.
func ExampleMiddleware() {
	c, _ := client.New(client.Options{Nodes: []string{nodeURL}, Token: token})
	limit := client.Middleware{Client: c, Request: func(r *http.Request) (client.Request, error) {
		return client.Request{Labels: map[string]string{"tenant": r.Header.Get("Tenant")}}, nil
	}}
	handler := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))

	for _, tenant := range []string{"acme", "nobody"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Tenant", tenant)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(tenant, w.Code)
	}
	// Output:
	// acme 200
	// nobody 422
}

// An estimate is held while the work runs; then the true cost counts.
func ExampleClient_Reserve() {
	ctx := context.Background()
	c, _ := client.New(client.Options{Nodes: []string{nodeURL}, Token: token})
	d, err := c.Reserve(ctx, client.Request{
		Labels: map[string]string{"tenant": "acme", "metered": "yes"}, Costs: map[string]int64{"tokens": 2000},
	})
	if err != nil || !d.Admitted() {
		return // not admitted: err says that nobody decided, d why it was refused
	}
	s, err := c.Settle(ctx, d.Ref(), map[string]int64{"tokens": 1234})
	fmt.Println(s.State, s.Budgets[1].Charged, err)
	// Output: settled 1234 <nil>
}

// Work that does not fit now is kept with its id, and asked for again under it.
func ExampleClient_Admit_later() {
	ctx := context.Background()
	c, _ := client.New(client.Options{Nodes: []string{nodeURL}, Token: token})
	work := client.Request{ID: "job-4711", Labels: map[string]string{"tenant": "acme"}}
	d, err := c.Admit(ctx, work)
	if err == nil && !d.Admitted() && d.Retryable {
		fmt.Println("store job-4711, and come back in", d.RetryAfter)
	}
	again, err := c.Admit(ctx, work) // for example after a restart: it is not charged twice
	fmt.Println(again.Admitted(), again.Replayed, err)
	// Output: true true <nil>
}
