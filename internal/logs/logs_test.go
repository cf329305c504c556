package logs_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/logs"
)

func TestOrDefault(t *testing.T) {
	own := slog.New(slog.DiscardHandler)
	if logs.OrDefault(own) != own {
		t.Error("OrDefault did not return the logger that was set")
	}
	l := logs.OrDefault(nil) // before the program sets its default logger
	var out bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for _, l := range []*slog.Logger{l, l.With("k", 1), l.WithGroup("g").With("k", 1)} {
		out.Reset()
		l.Info("hidden")
		l.Warn("seen")
		l.Error("seen")
		if s := out.String(); strings.Contains(s, "hidden") || strings.Count(s, "seen") != 2 {
			t.Errorf("logged %q, want the warning and the error", s)
		}
	}
	if s := out.String(); strings.Count(s, "g.k=1") != 2 {
		t.Errorf("logged %q, want the group's attribute", s)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})))
	out.Reset()
	if l.Warn("hidden"); out.Len() > 0 {
		t.Errorf("logged %q though the default logger does not log warnings", &out)
	}
}
