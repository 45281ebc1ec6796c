package agent

import (
	"log/slog"
	"os"
)

// NewLogger returns a logger to standard error, of text or of JSON objects. An unknown level is info. In
// the journal, which has its own, lines have no time.
func NewLogger(level string, json bool) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: l}
	if os.Getenv("JOURNAL_STREAM") != "" {
		options.ReplaceAttr = withoutTime
	}
	if json {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
