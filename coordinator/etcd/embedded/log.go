package embedded

import (
	"maps"
	"slices"

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
	if entry.Level >= zapcore.ErrorLevel {
		level = hclog.Error
	}
	c.to.Log(level, entry.Message, pairs(fields)...)
	return nil
}

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
