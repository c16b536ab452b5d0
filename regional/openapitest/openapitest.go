// Package openapitest holds answers of an HTTP API against its OpenAPI document: an answer may have no status, header,
// content type or member that the document does not name.
//
// It knows what a document of ours uses of OpenAPI 3.1 and JSON Schema, and fails on anything else, so that nothing is
// left unchecked in silence.
package openapitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type object = map[string]any

// Document is a parsed OpenAPI document.
type Document struct{ root object }

// Parse reads a document.
func Parse(text []byte) (*Document, error) {
	var root object
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	if version, _ := root["openapi"].(string); !strings.HasPrefix(version, "3.1.") {
		return nil, fmt.Errorf("the document is of OpenAPI %q, not 3.1", version)
	}
	return &Document{root: root}, nil
}

// Answer is what a server answered.
type Answer struct {
	Method string
	Path   string // without the query
	Status int
	Header http.Header
	Body   []byte
	// Request is the body that was answered. One that was answered with 200 must fit the document too.
	Request []byte
}

// Paths are those of the document.
func (d *Document) Paths() []string { return slices.Sorted(maps.Keys(d.paths())) }

func (d *Document) paths() object { return d.root["paths"].(object) }

// Check says what in the answer the document does not allow. A path that it does not have must be answered with 404.
func (d *Document) Check(a Answer) error {
	path := d.path(a.Path)
	if path == nil {
		if a.Status != http.StatusNotFound {
			return fmt.Errorf("%s is not in the document, and is answered with %d", a.Path, a.Status)
		}
		return nil
	}
	operation := d.operation(path, a.Method)
	if operation == nil { // a method that the path does not have
		if a.Status == http.StatusNoContent && a.Method == http.MethodOptions && a.Header.Get("Allow") != "" {
			return nil
		}
		for _, any := range path {
			operation = any.(object)
		}
		if a.Status != http.StatusMethodNotAllowed {
			return fmt.Errorf("%s %s is not in the document, and is answered with %d", a.Method, a.Path, a.Status)
		}
	}
	response, ok := operation["responses"].(object)[strconv.Itoa(a.Status)].(object)
	if !ok {
		return fmt.Errorf("%s %s: status %d is not in the document", a.Method, a.Path, a.Status)
	}
	err := errors.Join(d.headers(response, a.Header), d.body(response, a), d.request(operation, a))
	if err != nil {
		return fmt.Errorf("%s %s %d: %w", a.Method, a.Path, a.Status, err)
	}
	return nil
}

// path finds the path whose template fits.
func (d *Document) path(given string) object {
	var found object
	longest := 0 // of two that fit, the one that writes out more
	for template, path := range d.paths() {
		head, tail, parameter := strings.Cut(template, "{")
		_, tail, _ = strings.Cut(tail, "}")
		fits := given == template || parameter && strings.HasPrefix(given, head) && strings.HasSuffix(given, tail)
		if fits && len(head)+len(tail) > longest {
			found, longest = path.(object), len(head)+len(tail)
		}
	}
	return found
}

func (d *Document) operation(path object, method string) object {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	operation, _ := path[strings.ToLower(method)].(object)
	return operation
}

// transport are headers of HTTP itself, which a document does not name.
var transport = []string{"Content-Type", "Content-Length", "Date", "Connection", "Vary", "Transfer-Encoding", "Content-Encoding"}

func (d *Document) headers(response object, given http.Header) error {
	var errs []error
	known := map[string]bool{}
	declared, _ := response["headers"].(object)
	for name, h := range declared {
		header := d.follow(h.(object))
		canonical := http.CanonicalHeaderKey(name)
		known[canonical] = true
		values := given.Values(canonical)
		if header["required"] == true && len(values) == 0 {
			errs = append(errs, fmt.Errorf("the header %s is missing", name))
		}
		for _, v := range values {
			errs = append(errs, d.value(header["schema"].(object), v, "header "+name))
		}
	}
	for name := range given {
		if !known[name] && !slices.Contains(transport, name) {
			errs = append(errs, fmt.Errorf("the header %s is not in the document", name))
		}
	}
	return errors.Join(errs...)
}

func (d *Document) body(response object, a Answer) error {
	content, _ := response["content"].(object)
	if len(content) == 0 {
		if len(a.Body) > 0 || a.Header.Get("Content-Type") != "" {
			return fmt.Errorf("there is a body of type %q, and the document has none", a.Header.Get("Content-Type"))
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("read the content type %q: %w", a.Header.Get("Content-Type"), err)
	}
	media, ok := content[kind].(object)
	if !ok {
		return fmt.Errorf("the content type %s is not in the document", kind)
	}
	if a.Method == http.MethodHead || !strings.HasSuffix(kind, "json") {
		return nil
	}
	var value any
	if err := json.Unmarshal(a.Body, &value); err != nil {
		return fmt.Errorf("the body is no JSON: %w", err)
	}
	return d.value(media["schema"].(object), value, "body")
}

func (d *Document) request(operation object, a Answer) error {
	wanted, ok := operation["requestBody"].(object)
	if !ok || a.Status != http.StatusOK {
		return nil
	}
	var value any
	if err := json.Unmarshal(a.Request, &value); err != nil {
		return fmt.Errorf("the request's body is no JSON: %w", err)
	}
	return d.value(wanted["content"].(object)["application/json"].(object)["schema"].(object), value, "request")
}

// follow resolves a reference.
func (d *Document) follow(o object) object {
	for {
		ref, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		at := any(d.root)
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(object)[part]
		}
		if at == nil {
			panic("the document refers to " + ref + ", which it does not have")
		}
		o = at.(object)
	}
}
