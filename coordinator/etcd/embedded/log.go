package embedded

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap/zapcore"
)

// core writes etcd's log lines to ours.
type core struct{ to hclog.Logger }

func (c core) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.to.With(pairs(fields)...)}
}

func (c core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	level := hclog.Warn
	switch {
	case harmless(entry.Message, fields):
		level = hclog.Debug
	case entry.Level >= zapcore.ErrorLevel:
		level = hclog.Error
	}
	c.to.Log(level, entry.Message, pairs(fields)...)
	return nil
}

// harmless says whether etcd warns of what is meant here, at each start and at each end in order. It serves its health
// page beside its clients' calls; it has users only where we are no part of it; and a listener that is closed is how it
// ends. One that is closed otherwise ends the member, which Server tells by itself.
func harmless(message string, fields []zapcore.Field) bool {
	switch strings.TrimSuffix(message, ".") {
	case "Running http and grpc server on single port. This is not recommended for production",
		"simple token is not cryptographically signed":
		return true
	case "setting up serving from embedded etcd failed", "stopping insecure grpc server due to error", "stopped insecure grpc server due to error":
	default:
		return false
	}
	return slices.ContainsFunc(fields, func(f zapcore.Field) bool {
		err, is := f.Interface.(error)
		return is && (errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) || slices.Contains(closed, err.Error()))
	})
}

// closed are the errors of a close in order that are not ours to import.
var closed = []string{"mux: server closed", "mux: listener closed", "grpc: the server has been stopped"}

func (c core) Sync() error { return nil }

// pairs orders the fields by name, so that equal lines look equal.
func pairs(fields []zapcore.Field) []any {
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoder)
	}
	var out []any
	for _, name := range slices.Sorted(maps.Keys(encoder.Fields)) {
		out = append(out, name, encoder.Fields[name])
	}
	return out
}
