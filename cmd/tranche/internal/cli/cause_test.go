package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// connectError is written as the database's driver does.
type connectError struct{ error }

func (e connectError) Error() string {
	return "failed to connect:\n\t" + strings.ReplaceAll(e.error.Error(), "\n", "\n\t")
}

func (e connectError) Unwrap() error { return e.error }

// A node that does not start says why in one line: not twice, and not first that there is no TLS, which is no fault here.
func TestOneCauseOfARefusedConnection(t *testing.T) {
	tls, password := errors.New("tls error: server refused TLS connection"), fmt.Errorf("wrong password: %w", io.EOF)
	for _, c := range []struct {
		tries []error
		want  string
	}{
		{[]error{password, password}, "open: failed to connect: wrong password: EOF"},
		{[]error{tls, password}, "open: failed to connect: wrong password: EOF"},
		{[]error{tls, tls}, "open: failed to connect: tls error: server refused TLS connection"},
		{[]error{password, io.ErrClosedPipe, tls}, "open: failed to connect:\n\twrong password: EOF\n\tio: read/write on closed pipe"},
	} {
		err := onceEach(fmt.Errorf("open: %w", connectError{errors.Join(c.tries...)}))
		if err.Error() != c.want {
			t.Errorf("got %q, want %q", err, c.want)
		}
		if errors.Is(err, io.EOF) != strings.Contains(c.want, "EOF") {
			t.Errorf("%q lost its cause", err)
		}
	}
	if onceEach(nil) != nil || onceEach(io.EOF) != io.EOF {
		t.Error("what is no list is changed")
	}
}
