package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
)

// If this failed, an operator would not hear that etcd is in trouble: only what
// belongs to a start or to an end in order may be quiet.
func TestLogQuietsOnlyWhatIsHarmless(t *testing.T) {
	const serving = "setting up serving from embedded etcd failed."
	for _, c := range []struct {
		message string
		err     error
		level   string
	}{
		{"simple token is not cryptographically signed", nil, "[DEBUG]"},
		{serving, &net.OpError{Op: "accept", Net: "tcp", Err: net.ErrClosed}, "[DEBUG]"},
		{serving, errors.New("mux: server closed"), "[DEBUG]"},
		{serving, errors.New("bind: address already in use"), "[ERROR]"},
		{"slow fdatasync", fmt.Errorf("disk: %w", net.ErrClosed), "[ERROR]"},
	} {
		var out bytes.Buffer
		log := zapTo(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace}))
		log.Info("a step of its own")
		log.Error(c.message, zap.Error(c.err))
		if !strings.Contains(out.String(), c.level) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s (%v), want %s:\n%s", c.message, c.err, c.level, &out)
		}
	}
}
