// Package logs provides the logger for programs that do not set one.
package logs

import (
	"context"
	"log/slog"
)

// OrDefault returns l. If l is nil, it returns a logger that passes on only warnings and errors. Each goes to the
// logger that is [slog.Default] at that time. Failures must not go unnoticed, but other records would be noise in the
// log of a program that did not ask for them.
func OrDefault(l *slog.Logger) *slog.Logger {
	if l != nil {
		return l
	}
	return slog.New(warnings{func() slog.Handler { return slog.Default().Handler() }})
}

// warnings is a [slog.Handler] that passes warnings and errors on.
type warnings struct {
	to func() slog.Handler
}

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.to().Enabled(ctx, level)
}

func (w warnings) Handle(ctx context.Context, r slog.Record) error { return w.to().Handle(ctx, r) }

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{func() slog.Handler { return w.to().WithAttrs(attrs) }}
}

func (w warnings) WithGroup(name string) slog.Handler {
	return warnings{func() slog.Handler { return w.to().WithGroup(name) }}
}
