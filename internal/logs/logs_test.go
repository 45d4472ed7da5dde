package logs

import (
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The environment gives the format of all lines, also of those below a logger.
func TestFormat(t *testing.T) {
	for format, is := range map[string]func([]byte) bool{"json": json.Valid, "text": func(b []byte) bool { return strings.Contains(string(b), `msg="some lines" lost=3`) }} {
		t.Setenv(FormatVariable, format)
		if line := Line("some lines", "lost", 3); !is(line) {
			t.Errorf("%s: %s", format, line)
		}
	}
}

func TestFlag(t *testing.T) {
	for _, c := range []struct{ env, fallback, arg, want string }{
		{"", "info", "", "info"}, {"debug", "info", "", "debug"}, {"debug", "info", "error", "error"}, {"loud", "", "", ""}, {"", "", "loud", "refused"},
	} {
		t.Setenv(LevelVariable, c.env)
		f := flag.NewFlagSet("x", flag.ContinueOnError)
		f.SetOutput(new(strings.Builder))
		got := Flag(f, c.fallback)
		var args []string
		if c.arg != "" {
			args = []string{"--log-level", c.arg}
		}
		if err := f.Parse(args); err != nil {
			*got = "refused"
		}
		if *got != c.want {
			t.Errorf("%+v: got %q", c, *got)
		}
	}
}

// The signal switches to debug, and the next one back.
func TestSwitchOnSignal(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var level slog.LevelVar
	level.Set(slog.LevelWarn)
	SwitchOnSignal(ctx, &level)
	for _, want := range []slog.Level{slog.LevelDebug, slog.LevelWarn} {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		for end := time.Now().Add(time.Minute); level.Level() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("got %v, want %v", level.Level(), want)
			}
		}
	}
}
