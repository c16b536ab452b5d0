package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func client(t *testing.T, addresses ...string) *Client {
	t.Helper()
	c, err := New("coordinator", strings.Join(addresses, ","), "secret", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.replicaTimeout = 100 * time.Millisecond
	return c
}

func server(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	return s.URL
}

// coordinator answers as one does: without a token only that one is needed.
func coordinator(t *testing.T, serve http.HandlerFunc) string {
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"type":"urn:tranche:unauthorized","code":"unauthorized"}`)
			return
		}
		serve(w, r)
	})
}

// silent is the address of a process that is stopped: the kernel accepts connections for it, and nothing answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

// Any server's {} would pass for a deployment in which all is well, and would get the admin's token and a change.
func TestSendsNothingToWhatIsNoCoordinator(t *testing.T) {
	for answer, want := range map[string]string{
		`{}`:                          " is no coordinator; correct",
		`<html>`:                      " is no coordinator; correct",
		`{"region":"a","node":"a-1"}`: " is no coordinator (it looks like a node: use --node)",
		`{"type":"urn:tranche:problem:token_missing"}`: " is no coordinator (it looks like a node: use --node)",
	} {
		address := server(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.Header.Get("Authorization") != "" {
				t.Errorf("%s got %s %s and %q", answer, r.Method, r.URL, r.Header.Get("Authorization"))
			}
			fmt.Fprint(w, answer)
		})
		_, err := client(t, address).Do(t.Context(), Call{Method: http.MethodPut, Path: "/v1/budgets/x"}, nil)
		if err == nil || !strings.Contains(err.Error(), address+want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// A node's command at a coordinator's address must not look like a wrong token or a missing path.
func TestNodeTellsACoordinator(t *testing.T) {
	c, err := New("node", coordinator(t, nil), "", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Do(t.Context(), Call{Method: http.MethodGet, Path: "/v1/status"}, nil)
	if err == nil || !strings.Contains(err.Error(), " is no node (it looks like a coordinator: use --coordinator)") {
		t.Error(err)
	}
}

// A stopped replica must not make a deployment look dead whose other replica serves, and must not cost its time at every call.
func TestSilentReplicaIsPassedOver(t *testing.T) {
	dead := silent(t)
	alive := coordinator(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	c := client(t, dead, alive)
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		if _, err := c.Do(t.Context(), Call{Method: method, Path: "/v1/x"}, nil); err != nil || c.Address() != alive {
			t.Errorf("%s: %v by %s", method, err, c.Address())
		}
	}
}

// A change whose answer is lost may have been made. Sent to the next replica it could be made twice.
func TestLostAnswerOfAChangeIsNotSentAgain(t *testing.T) {
	lost := coordinator(t, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	changed, read := 0, 0
	other := coordinator(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			changed++
		} else {
			read++
		}
		fmt.Fprint(w, `{}`)
	})
	c := client(t, lost, other)
	_, err := c.Do(t.Context(), Call{Method: http.MethodPost, Path: "/v1/tokens"}, nil)
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "look with `tranche audit`") || changed != 0 {
		t.Errorf("%v; the other got %d changes", err, changed)
	}
	if _, err := c.Do(t.Context(), Call{Method: http.MethodGet, Path: "/v1/tokens"}, nil); err != nil || read != 1 {
		t.Errorf("a read: %v; the other got %d", err, read)
	}
}
