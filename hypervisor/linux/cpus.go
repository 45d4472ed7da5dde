// Package linux is the CPU side of domains on a Linux host: what part of its CPUs
// each was given, and when their vCPUs run.
//
// The backend calls it by the hypervisor contract; process guests and virtual
// machines are looked at together, since they share the CPUs. It believes the
// kernel, and takes from a guest only what bounds the guest itself.
package linux

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"pegasus/hypervisor"
	"pegasus/vcpu"
)

// CPUs is the CPU side of process guests, as Linux tells it in /proc and
// /sys/fs/cgroup. The vCPUs of a domain are the threads of its processes. What
// credit each has left is computed from what it ran and waited for (schedstat).
type CPUs struct {
	proc, cgroups string // where these file systems are
	cpus          int    // that the guests share
	log           *slog.Logger

	weights   map[string]hypervisor.Weight // as last read
	processes map[int]*process             // those looked at, by PID
	threads   int                          // in all of them
	looked    vcpu.Time
	looks     int
	blind     sync.Once // it was said that there is no schedstat
	accounts  []*hypervisor.Account
	buf       [1024]byte
}

const (
	// maxThreads is how many threads of a domain count, maxWatched how many of all:
	// each keeps two files open.
	maxThreads = 64
	maxWatched = 512
	// listEvery is how many looks pass until it is looked for new threads of a
	// process that is known.
	listEvery = 8
	// longPause is how many periods may pass between two looks, before what
	// happened since the last one says nothing any more.
	longPause = 8
)

// process is a guest process whose threads are looked at.
type process struct {
	threads []*thread // by TID
	listed  int       // at which look
	wanted  bool      // at this one
}

// NewCPUs returns the CPU side of this host's processes.
func NewCPUs(log *slog.Logger) *CPUs {
	return newCPUs("/proc", "/sys/fs/cgroup", runtime.NumCPU(), log)
}

func newCPUs(proc, cgroups string, cpus int, log *slog.Logger) *CPUs {
	return &CPUs{proc: proc, cgroups: cgroups, cpus: cpus, log: log, processes: make(map[int]*process)}
}

// Look implements hypervisor.CPUs. What a thread will run in the coming period is
// taken to be its part, by weight, of the CPU on which it waits or runs now, and
// nothing if it sleeps. Of those on one CPU the one that is owed most counts as
// running.
func (c *CPUs) Look(now vcpu.Time, period time.Duration, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	passed := now.Sub(c.looked)
	known := c.looks > 0 && passed > 0 && passed <= longPause*period
	c.looks++
	c.looked = now
	weights := c.remembered(of)
	seen := c.visit(of)
	c.settle(seen, weights, min(passed, longPause*period), known)
	foretell(seen)
	all := make([]vcpu.Schedule, len(of))
	quality := vcpu.Unknown
	for i, threads := range seen {
		s := &all[i]
		s.Weight, s.Cap = weights[i].Credits, weights[i].Cap
		s.VCPUs = make([]vcpu.VCPU, len(threads))
		for n, t := range threads {
			s.VCPUs[n] = t.vcpu
			if credit := int64(t.account.Credit / (100 * time.Microsecond)); n == 0 || credit > s.Remaining {
				s.Remaining = credit
			}
			quality = vcpu.Shadow
		}
	}
	return all, quality
}

// remembered are the domains' weights as they were last read; of all, if one is new.
func (c *CPUs) remembered(of []hypervisor.Guests) []hypervisor.Weight {
	weights := make([]hypervisor.Weight, len(of))
	for i, g := range of {
		w, known := c.weights[g.Domain]
		if !known {
			return c.Weights(of)
		}
		weights[i] = w
	}
	return weights
}

// visit reads what all threads of the domains did, at most maxThreads of each.
func (c *CPUs) visit(of []hypervisor.Guests) [][]*thread {
	for _, p := range c.processes {
		p.wanted = false
	}
	seen := make([][]*thread, len(of))
	for i, g := range of {
		for _, pid := range g.Processes {
			p := c.processes[pid]
			if p == nil {
				p = &process{listed: -listEvery}
				c.processes[pid] = p
			}
			p.wanted = true
			if c.looks-p.listed >= listEvery {
				p.listed = c.looks
				c.list(pid, p, maxThreads-len(seen[i]))
			}
			p.threads = slices.DeleteFunc(p.threads, func(t *thread) bool {
				gone := !t.look(c.buf[:])
				if gone {
					t.close()
					c.threads--
				}
				return gone
			})
			seen[i] = append(seen[i], p.threads[:min(len(p.threads), maxThreads-len(seen[i]))]...)
		}
	}
	for pid, p := range c.processes {
		if !p.wanted {
			c.drop(p)
			delete(c.processes, pid)
		}
	}
	return seen
}

// Close lets go of what is kept open.
func (c *CPUs) Close() {
	for _, p := range c.processes {
		c.drop(p)
	}
	clear(c.processes)
}

func (c *CPUs) drop(p *process) {
	for _, t := range p.threads {
		t.close()
	}
	c.threads -= len(p.threads)
}

// list looks for threads that are new, as long as there are no more than most.
func (c *CPUs) list(pid int, p *process, most int) {
	if len(p.threads) >= most || c.threads >= maxWatched {
		return
	}
	dir := filepath.Join(c.proc, strconv.Itoa(pid), "task")
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxThreads)
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		at, there := slices.BinarySearchFunc(p.threads, tid, func(t *thread, tid int) int { return t.vcpu.ID - tid })
		if there || len(p.threads) >= most || c.threads >= maxWatched {
			continue
		}
		t, err := openThread(filepath.Join(dir, name), tid)
		if err != nil {
			if _, gone := os.Stat(filepath.Join(dir, name)); gone == nil {
				c.blind.Do(func() { c.log.Warn("can't see when guests run, so augc and cosched go by weights alone", "err", err) })
			}
			continue
		}
		p.threads = slices.Insert(p.threads, at, t)
		c.threads++
	}
}

// settle brings the threads' credits up to date after a time in which they did what
// was read, if that is known. A domain's weight is divided among those of its
// threads that wanted to run.
func (c *CPUs) settle(seen [][]*thread, weights []hypervisor.Weight, passed time.Duration, known bool) {
	c.accounts = c.accounts[:0]
	for i, threads := range seen {
		active := int64(0)
		for _, t := range threads {
			t.spend(known)
			if t.account.Ran > 0 || t.account.Waited > 0 {
				active++
			}
		}
		for _, t := range threads {
			t.account.Weight = max(int64(weights[i].Credits.OrDefault())<<10/max(active, 1), 1)
			c.accounts = append(c.accounts, &t.account)
		}
	}
	if known {
		hypervisor.Settle(c.accounts, passed, c.cpus)
	}
}

// foretell says of each thread what it does, and will in the coming period.
func foretell(seen [][]*thread) {
	type load struct {
		weight int64
		first  *thread // the one that is owed most
	}
	loads := make(map[int]load)
	for _, threads := range seen {
		for _, t := range threads {
			if t.vcpu.State == vcpu.Blocked {
				continue
			}
			l := loads[t.vcpu.PCPU]
			l.weight += t.account.Weight
			if l.first == nil || t.account.Credit > l.first.account.Credit {
				l.first = t
			}
			loads[t.vcpu.PCPU] = l
		}
	}
	for _, threads := range seen {
		for _, t := range threads {
			t.vcpu.Next = 0
			if t.vcpu.State == vcpu.Blocked {
				continue
			}
			l := loads[t.vcpu.PCPU]
			t.vcpu.Next = int(1000 * t.account.Weight / l.weight)
			t.vcpu.State = vcpu.Runnable
			if t == l.first {
				t.vcpu.State = vcpu.Running
			}
		}
	}
}
