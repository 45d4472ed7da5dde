// Package workers starts worker processes ahead of time and gives them jobs, confines them to the cgroups and the user
// of their domain, and finds the workers that a previous daemon left running.
//
// Callers: backend.
//
// Trust boundary: a worker executes hostile input. The package trusts the record that a daemon saved of a worker more
// than the worker's own description.
//
// Locks: Workers.mu and each pool's are leaves. No lock is held across a wait.
package workers

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Options configures Workers.
type Options struct {
	RuntimeDir string
	Private    bool                // workers end with the daemon, and no later daemon finds them
	Command    []string            // of a worker process
	Commands   map[string][]string // for the accelerator types with a program of their own
	Types      []string            // of the configured accelerators
	Log        *slog.Logger
}

// Workers owns the pools of workers without a job, and the cgroups and users of domains' workers.
type Workers struct {
	opt     Options
	pools   map[string]*pool // by poolKey; constant
	cgroups []cgroup         // constant after Confine

	mu   sync.Mutex
	uids map[int]bool // users in use by domains
}

// New returns Workers with one empty pool, under "", for the accelerator types with common workers, and one for each
// other type.
func New(opt Options) *Workers {
	w := &Workers{opt: opt, pools: map[string]*pool{}, uids: map[int]bool{}}
	for _, t := range opt.Types {
		key := w.poolKey(t)
		if w.pools[key] != nil {
			continue
		}
		command := opt.Command
		if key != "" {
			command = opt.Commands[key]
		}
		w.pools[key] = newPool(command, w.park, opt.Log)
	}
	return w
}

// Run removes the cgroups that killed daemons left behind, and keeps the pools full until ctx ends.
func (w *Workers) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	for _, g := range w.cgroups {
		tasks.Go(g.sweep)
	}
	for _, p := range w.pools {
		tasks.Go(func() { p.run(ctx) })
	}
	tasks.Wait()
}

// poolKey returns the key of the pool for an accelerator type.
func (w *Workers) poolKey(t string) string {
	if w.opt.Commands[t] == nil {
		return ""
	}
	return t
}

func (w *Workers) poolOf(t string) *pool { return w.pools[w.poolKey(t)] }

// Resize sets the number of ready workers to keep in each pool.
func (w *Workers) Resize(want int) {
	for _, p := range w.pools {
		p.resize(want)
	}
}

// Ready returns the number of ready workers.
func (w *Workers) Ready() (n int) {
	for _, p := range w.pools {
		n += p.ready()
	}
	return n
}

// Close ends the workers without a job and removes the cgroups. Where all workers have ended, it retries for patience
// to remove the cgroups.
func (w *Workers) Close(patience time.Duration) {
	for _, p := range w.pools {
		p.close()
	}
	w.removeCgroups(patience)
}
