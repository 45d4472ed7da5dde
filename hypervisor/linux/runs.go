package linux

import (
	"log/slog"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux/switches"
	"pegasus/vcpu"
)

// Runs samples when vCPUs run. Where the kernel records switches, the last run of each thread is exact, and those
// before it since the last Look are merged; else only the length of the runs is measured, and their times are rough.
type Runs struct {
	cpus *CPUs
	last int64
	was  map[*thread]bool // ran at the last look
}

// NewRuns returns the Runs of this host's guests. load is as for NewCPUs; the table is not shared.
func NewRuns(log *slog.Logger, load func() (*switches.Table, error)) *Runs {
	return &Runs{cpus: NewCPUs(log, load), was: make(map[*thread]bool)}
}

// Look implements hypervisor.Runs.
func (r *Runs) Look(of []hypervisor.Guests, emit func(hypervisor.Run)) {
	if r.cpus.looks == 0 {
		r.cpus.begin()
	}
	r.cpus.looks++
	seen := r.cpus.visit(of)
	now := monotonic()
	was := make(map[*thread]bool, len(r.was))
	for i, threads := range seen {
		for _, t := range threads {
			for _, p := range t.pieces(r.last, now, r.was[t]) {
				emit(hypervisor.Run{Domain: of[i].Domain, VCPU: t.vcpu.ID, CPU: t.vcpu.PCPU, From: p.from, To: p.to})
			}
			was[t] = t.vcpu.State == vcpu.Running
		}
	}
	r.was, r.last = was, now
}

// Close implements hypervisor.Runs.
func (r *Runs) Close() { r.cpus.Close() }

// piece is an interval.
type piece struct{ from, to int64 }

// pieces returns when a thread ran between last and now, from its samples at both.
func (t *thread) pieces(last, now int64, was bool) (all []piece) {
	ran := min(int64(t.done.ran), now-last)
	if last == 0 || ran <= 0 {
		return nil
	}
	if !t.exact { // the times are unknown: as late as possible
		return []piece{{now - ran, now}}
	}
	since := min(max(t.since, last), now)
	runs := t.vcpu.State == vcpu.Running
	before := min(ran, since-last)
	if runs {
		before = min(ran-(now-since), since-last)
	}
	switch {
	case before <= 0:
	case was:
		all = append(all, piece{last, last + before})
	default:
		all = append(all, piece{since - before, since})
	}
	if runs && since < now {
		all = append(all, piece{since, now})
	}
	return all
}
