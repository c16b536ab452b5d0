package webhook_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tranche/coordinator/webhook"
)

var secret = []byte("0123456789abcdef")

// A receiver that believes an unsigned, an altered or an old delivery can be made to page anybody, or to stay silent.
func TestSignature(t *testing.T) {
	at, body := time.Unix(1_764_525_600, 0), []byte(`{"kind":"threshold"}`)
	good := webhook.Sign(secret, at, body)
	for name, c := range map[string]struct {
		secret, body, signature string
		now                     time.Time
		ok                      bool
	}{
		"as sent":        {string(secret), string(body), good, at.Add(time.Minute), true},
		"another body":   {string(secret), `{"kind":"frozen"}`, good, at, false},
		"another secret": {"another secret!!", string(body), good, at, false},
		"another time":   {string(secret), string(body), strings.Replace(good, "t=1764525600", "t=1764525601", 1), at, false},
		"old":            {string(secret), string(body), good, at.Add(time.Hour), false},
		"ahead":          {string(secret), string(body), good, at.Add(-time.Hour), false},
		"none":           {string(secret), string(body), "", at, false},
		"cut short":      {string(secret), string(body), good[:len(good)-2], at, false},
	} {
		if err := webhook.Verify([]byte(c.secret), c.signature, []byte(c.body), c.now, 5*time.Minute); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The commands that the documentation gives must find the same signature as we do.
func TestTheDocumentedCheck(t *testing.T) {
	page, err := os.ReadFile("../../deploy/docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(page)
	if script == nil {
		t.Fatal("events.md shows no check")
	}
	dir := t.TempDir()
	body := `{"kind":"threshold","text":"80 % of it"}`
	signature := webhook.Sign(secret, time.Unix(1_764_525_600, 0), []byte(body))
	for name, text := range map[string]string{"secret": string(secret) + "\n", "body": body} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(signature string) error {
		c := exec.CommandContext(t.Context(), "sh", "-c", string(script[1]))
		c.Dir, c.Env = dir, append(os.Environ(), "SIGNATURE="+signature)
		out, err := c.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
			t.Fatal(err, string(out))
		}
		return err
	}
	if err := run(signature); err != nil {
		t.Errorf("what was sent is not believed: %v", err)
	}
	if run(strings.Replace(signature, "t=1764525600", "t=1764525601", 1)) == nil || run("t=1764525600,v1=00") == nil {
		t.Error("a forged signature is believed")
	}
}

// What is not taken must be an error, or the event would be lost; a redirect would carry it to somebody else.
func TestSend(t *testing.T) {
	status := http.StatusNoContent
	var seen *http.Request
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer s.Close()
	hook, err := webhook.New(s.URL+"/tranche", secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := hook.Send(t.Context(), "id-1", now, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if seen.URL.Path != "/tranche" || seen.Header.Get(webhook.EventHeader) != "id-1" || webhook.Verify(secret, seen.Header.Get(webhook.SignatureHeader), body, now, time.Minute) != nil {
		t.Errorf("%v %s", seen.Header, body)
	}
	for _, status = range []int{http.StatusFound, http.StatusUnauthorized, http.StatusInternalServerError} {
		if err := hook.Send(t.Context(), "id-1", now, []byte(`{}`)); err == nil || strings.Contains(err.Error(), s.URL) {
			t.Errorf("%d: %v", status, err)
		}
		if seen.URL.Path != "/tranche" {
			t.Error("a redirect was followed")
		}
	}
	s.Close()
	if err := hook.Send(t.Context(), "id-1", now, []byte(`{}`)); err == nil || strings.Contains(err.Error(), "/tranche") {
		t.Errorf("%v", err)
	}
}

// A secret in the clear, or one that can be guessed, is none.
func TestNewRefuses(t *testing.T) {
	for _, address := range []string{"", "hooks.example.com", "http://hooks.example.com/x", "ftp://localhost/x", "https://user:pass@hooks.example.com"} {
		if _, err := webhook.New(address, secret); err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := webhook.New("https://hooks.example.com", []byte("short")); err == nil {
		t.Error("a short secret was taken")
	}
	for _, address := range []string{"https://hooks.example.com/x", "http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:1"} {
		if _, err := webhook.New(address, secret); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}
