package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// The files of a report.
const (
	JSONFile = "report.json"
	HTMLFile = "report.html"
)

// JSON is the report for programs; its schema is the documentation of Report and the types in it.
func (r Report) JSON() ([]byte, error) {
	out, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write the report of %s: %w", r.Scenario, err)
	}
	return append(compactLists(out), '\n'), nil
}

// compactLists puts lists of numbers, which stand one number to a line, into one line each.
func compactLists(in []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(in))
	lines := bytes.SplitAfter(in, []byte("\n"))
	inside := false
	for _, line := range lines {
		word := bytes.TrimSpace(line)
		number := len(word) > 0 && (word[0] == '-' || word[0] >= '0' && word[0] <= '9')
		switch {
		case number:
			out.Truncate(len(bytes.TrimRight(out.Bytes(), " \n")))
			out.Write(word)
			inside = true
		case inside:
			out.Truncate(len(bytes.TrimRight(out.Bytes(), " \n")))
			out.Write(bytes.TrimLeft(line, " "))
			inside = false
		default:
			out.Write(line)
		}
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

// WriteFiles writes report.html and report.json into a folder, which is made if it is not there. The page stands alone: it
// loads nothing.
func (r Report) WriteFiles(dir string) error {
	text, err := r.JSON()
	if err != nil {
		return err
	}
	page, err := r.HTML()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the report: %w", err)
	}
	for name, content := range map[string][]byte{JSONFile: text, HTMLFile: page} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}
