// Package top shows accelerators and domains on a terminal, as they change.
//
// Model is a state machine of Bubble Tea: Update returns the next state for a message, View draws it. Neither calls the
// daemon or reads a clock: commands do, and return messages with the answers and their times.
//
// Callers: cmd/pegasus.
//
// Trust boundary: names and reasons from the daemon can contain text of guests; control characters of all texts are
// replaced before they reach the terminal.
package top

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"pegasus/backend/control"
)

// Daemon is the part of the API that top uses; *client.Client implements it.
type Daemon interface {
	Status(ctx context.Context) (control.Status, error)
	Accelerators(ctx context.Context) ([]control.Accelerator, error)
	Domains(ctx context.Context) ([]control.Domain, error)
	History(ctx context.Context, domain string) (control.History, error)
	Explain(ctx context.Context, name string) ([]control.Explanation, error)
	Set(ctx context.Context, q control.SetParams) (control.Domain, error)
	SwitchPolicy(ctx context.Context, q control.PolicyParams) ([]control.Accelerator, error)
}

// Options are the choices of a caller.
type Options struct {
	Interval time.Duration // between two polls
	// Objective returns the state of a domain's objective; nil: the column is left out.
	Objective func(control.Domain) string
}

// answerTime bounds the time of one poll.
const answerTime = 5 * time.Second

// Run shows the daemon on a terminal until the user ends it.
func Run(daemon Daemon, opt Options, in io.Reader, out io.Writer) error {
	env := os.Environ()
	if os.Getenv("NO_COLOR") != "" {
		env = append(env, "NO_COLOR=1") // Bubble Tea ignores values that are no boolean
	}
	_, err := tea.NewProgram(New(daemon, opt), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(env)).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// Take polls the daemon once.
func Take(ctx context.Context, daemon Daemon) (*Poll, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	accelerators, err := daemon.Accelerators(ctx)
	if err != nil {
		return nil, err
	}
	domains, err := daemon.Domains(ctx)
	if err != nil {
		return nil, err
	}
	return &Poll{At: time.Now(), Accelerators: accelerators, Domains: domains}, nil
}

// Once polls the daemon twice, an interval apart, and returns the figures of the second poll.
func Once(ctx context.Context, daemon Daemon, interval time.Duration) (*Report, error) {
	before, err := Take(ctx, daemon)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(interval):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p, err := Take(ctx, daemon)
	if err != nil {
		return nil, err
	}
	return &Report{At: p.At, Interval: p.At.Sub(before.At).Nanoseconds(), Accelerators: p.Accelerators, Domains: p.Rows(before)}, nil
}
