package agent

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// Command runs a program of the machine for at most limit and returns its output. Running longer, or leaving a process
// behind that keeps the output open, is an error.
func Command(limit time.Duration, name string, args ...string) (out []byte, err error) {
	ctx, done := context.WithTimeout(context.Background(), limit)
	defer done()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err = cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s took longer than %v: %w", name, limit, ctx.Err())
	}
	return out, err
}

// ModulesTime is how long modprobe may take.
const ModulesTime = 30 * time.Second
