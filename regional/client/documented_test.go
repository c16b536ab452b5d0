//go:build unix

package client_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tranche/regional/openapitest"
)

// documented holds every answer that the clients of the tests get from the real node against the document that it serves.
type documented struct{ t testing.TB }

var document = sync.OnceValues(func() (*openapitest.Document, error) {
	r, err := http.Get(nodeURL + "/openapi.json")
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return openapitest.Parse(text)
})

func (d documented) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		sent, r.Body = text, io.NopCloser(bytes.NewReader(text))
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasPrefix(nodeURL, "http://"+r.URL.Host) {
		return resp, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	doc, err := document()
	if err == nil {
		err = doc.Check(openapitest.Answer{Method: r.Method, Path: r.URL.Path, Status: resp.StatusCode, Header: resp.Header, Body: text, Request: sent})
	}
	if err != nil {
		d.t.Errorf("not as the node's own OpenAPI document has it: %v", err)
	}
	return resp, nil
}
