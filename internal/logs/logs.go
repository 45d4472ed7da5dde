// Package logs sets up the logs of all programs of Pegasus: one form of lines, and a level that changes at run time.
// docs/logs.md lists the fields.
//
// Callers: the programs of cmd, and backend/worker. Trust boundary: none; the environment is the program's own.
package logs

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Variables of the environment. Child processes inherit them.
const (
	LevelVariable  = "PEGASUS_LOG_LEVEL"
	FormatVariable = "PEGASUS_LOG_FORMAT"
)

// Levels are the names of the levels.
var Levels = []string{"debug", "info", "warn", "error"}

// JSON is the format of lines that are JSON objects. Any other format is text.
const JSON = "json"

// Handler returns a handler that writes lines to w. The format is text or JSON; level nil is info.
func Handler(w io.Writer, format string, level slog.Leveler) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if strings.EqualFold(format, JSON) {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// New returns a logger with the format of the environment.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(Handler(w, os.Getenv(FormatVariable), level))
}

// Line returns a line of the level warn in the format of the environment, for a writer below a logger.
func Line(message string, attrs ...any) []byte {
	var b bytes.Buffer
	New(&b, nil).Warn(message, attrs...)
	return b.Bytes()
}

// Flag adds the flag --log-level, with the level of the environment as its default, or else fallback.
func Flag(f *flag.FlagSet, fallback string) *string {
	text := new(string)
	*text = fallback
	if v := os.Getenv(LevelVariable); slices.Contains(Levels, v) {
		*text = v
	}
	f.Func("log-level", "`level` of the log: debug, info, warn or error (default $"+LevelVariable+", else "+cmp.Or(fallback, "the configuration's")+")", func(v string) error {
		if !slices.Contains(Levels, v) {
			return fmt.Errorf("must be debug, info, warn or error")
		}
		*text = v
		return nil
	})
	return text
}

// SwitchOnSignal makes SIGUSR1 switch a level between debug and its present value, until ctx ends.
func SwitchOnSignal(ctx context.Context, level *slog.LevelVar) {
	switched := make(chan os.Signal, 1)
	signal.Notify(switched, syscall.SIGUSR1)
	first := level.Level()
	go func() {
		defer signal.Stop(switched)
		for {
			select {
			case <-switched:
				if level.Level() == slog.LevelDebug {
					level.Set(first)
				} else {
					level.Set(slog.LevelDebug)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}
