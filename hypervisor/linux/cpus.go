// Package linux is the CPU side of domains on a Linux host: each domain's part of its CPUs, and when their vCPUs run.
//
// Callers: the backend, by the hypervisor contract; process guests and virtual machines are sampled together, since
// they share the CPUs.
//
// Trust boundary: the kernel is trusted; of a guest's own settings only those that restrict the guest itself are
// used.
package linux

import (
	"errors"
	"log/slog"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux/switches"
	"pegasus/vcpu"
)

// CPUs is the CPU side of domains, as Linux reports it in /proc and /sys/fs/cgroup. The vCPUs of a domain are the
// threads of its processes; of a virtual machine, those of its emulator that run the guest. Each one's remaining
// credit is computed from its running and waiting times. The kernel records these where we may load BPF programs;
// else they are read from schedstat, which lags by up to a tick. One goroutine at a time uses it.
type CPUs struct {
	proc, cgroups string                          // mount points of these file systems
	load          func() (*switches.Table, error) // called at the first look; nil: never
	allowed       func(tid int) hypervisor.CPUSet // returns the CPUs of a thread's affinity
	log           *slog.Logger

	table  *switches.Table // nil: schedstat
	raiser *Raiser         // nil: no temporary weights

	weights   map[string]hypervisor.Weight // as last read
	processes map[int]*process             // the sampled ones, by PID
	threads   int                          // in all of them
	looked    vcpu.Time
	looks     int
	blind     sync.Once // the lack of schedstat was logged
	accounts  []*hypervisor.Account
	buf       [1024]byte
}

const (
	// maxThreads bounds the threads counted of a domain, maxWatched those of all: each keeps two files open.
	maxThreads = 64
	maxWatched = 512
	// listEvery is the number of looks between searches for new threads of a process.
	listEvery = 8
	// longPause is the number of periods between two looks after which the time between them isn't accounted for.
	longPause = 8
)

// process is a guest process with sampled threads.
type process struct {
	threads []*thread // by TID
	listed  int       // number of the look at which threads was listed
	wanted  bool      // in use at the current look
}

// NewCPUs returns the CPU side of this host's guests. The first Look calls load for a table of thread switches:
// switches.Load, or one from a privileged process. With nil, or where it fails, /proc is read.
func NewCPUs(log *slog.Logger, load func() (*switches.Table, error)) *CPUs {
	return &CPUs{proc: "/proc", cgroups: "/sys/fs/cgroup", load: load, allowed: allowedCPUs, log: log, processes: make(map[int]*process)}
}

// everywhere is the affinity that a thread has if its own is unknown.
var everywhere = hypervisor.FirstCPUs(runtime.NumCPU())

func allowedCPUs(tid int) hypervisor.CPUSet {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &set); err != nil || set.Count() == 0 {
		return everywhere
	}
	var cpus hypervisor.CPUSet
	for i, word := range set {
		at := i * bits.UintSize
		cpus[at/64] |= uint64(word) << (at % 64)
	}
	return cpus
}

// Look implements hypervisor.CPUs. Of the threads on one CPU, if none was seen to run, the one with most credit
// counts as running.
func (c *CPUs) Look(now vcpu.Time, period time.Duration, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	passed := now.Sub(c.looked)
	known := c.looks > 0 && passed > 0 && passed <= longPause*period
	if c.looks == 0 {
		c.begin()
	}
	c.looks++
	c.looked = now
	weights := c.remembered(of)
	seen := c.visit(of)
	c.settle(seen, weights, min(passed, longPause*period), known)
	c.foretell(seen, period)
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

// begin selects the source of the threads' states.
func (c *CPUs) begin() {
	why := error(errUnwanted)
	if c.load != nil {
		c.table, why = c.load()
	}
	if c.table == nil {
		c.log.Info("when guests run is read from /proc/PID/task/TID/schedstat", "why", why)
		return
	}
	c.log.Info("when guests run is noted by the kernel (eBPF at sched_switch and sched_wakeup)")
}

var errUnwanted = errors.New("eBPF is switched off")

// remembered returns the domains' weights as last read; it reads all if a domain is new.
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

// visit samples all threads of the domains, at most maxThreads of each.
func (c *CPUs) visit(of []hypervisor.Guests) [][]*thread {
	for _, p := range c.processes {
		p.wanted = false
	}
	seen := make([][]*thread, len(of))
	clock := monotonic()
	for i, g := range of {
		for n, pid := range g.Processes {
			p := c.processes[pid]
			if p == nil {
				p = &process{listed: -listEvery}
				c.processes[pid] = p
			}
			p.wanted = true
			if c.looks-p.listed >= listEvery {
				p.listed = c.looks
				c.list(pid, p, maxThreads-len(seen[i]), vcpusOf(g, n))
			}
			p.threads = slices.DeleteFunc(p.threads, func(t *thread) bool {
				gone := !c.see(t, clock)
				if gone {
					c.close(t)
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

// Close implements hypervisor.CPUs: it closes the open files and the kernel's table.
func (c *CPUs) Close() {
	for _, p := range c.processes {
		c.drop(p)
	}
	clear(c.processes)
	if c.table != nil {
		c.table.Close()
		c.table = nil
	}
	c.looks = 0
}

func (c *CPUs) drop(p *process) {
	for _, t := range p.threads {
		c.close(t)
	}
}

func (c *CPUs) close(t *thread) {
	if t.watched {
		c.table.Forget(t.place)
	}
	t.close()
	c.threads--
}

// see samples a thread: from the table, or from /proc as long as that has no state of it.
func (c *CPUs) see(t *thread, clock int64) bool {
	if t.watched {
		if e, ok := c.table.Read(t.place); ok && e.State != switches.Unknown {
			return t.take(e, clock)
		}
	}
	return t.look(c.buf[:])
}

func monotonic() int64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // which can't fail
	return now.Nano()
}

// list adds new threads, up to most, removes those that have ended unnoticed, and updates the affinity of the others.
func (c *CPUs) list(pid int, p *process, most int, vcpus threads) {
	p.threads = slices.DeleteFunc(p.threads, func(t *thread) bool {
		gone := t.exact && t.vcpu.State == vcpu.Blocked && !t.there(c.buf[:]) // the kernel may not have recorded its end
		if gone {
			c.close(t)
		}
		return gone
	})
	for _, t := range p.threads {
		t.account.CPUs = c.allowed(t.tid)
	}
	if len(p.threads) >= most || c.threads >= maxWatched {
		return
	}
	dir := filepath.Join(c.proc, strconv.Itoa(pid), "task")
	for _, tid := range vcpus.candidates(dir) {
		at, there := slices.BinarySearchFunc(p.threads, tid, func(t *thread, tid int) int { return t.tid - tid })
		if there || len(p.threads) >= most || c.threads >= maxWatched {
			continue
		}
		path := filepath.Join(dir, strconv.Itoa(tid))
		id, ok := vcpus.number(path, tid)
		if !ok {
			continue
		}
		t, err := openThread(path, tid, id)
		if err != nil {
			if _, gone := os.Stat(path); gone == nil {
				c.blind.Do(func() { c.log.Warn("cannot sample when guests run; policies use CPU weights alone", "err", err) })
			}
			continue
		}
		t.account.CPUs = c.allowed(tid)
		if c.table != nil {
			t.place, t.watched = c.table.Watch(tid)
		}
		p.threads = slices.Insert(p.threads, at, t)
		c.threads++
	}
}

// settle updates the threads' credits after a time; `known` reports whether their activity in that time was sampled. A
// domain's weight is divided among those of its threads that were runnable.
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
			t.account.Most = 1000
			if limit := weights[i].Cap; limit > 0 {
				t.account.Most = int(min(max(10*int64(limit)/max(active, 1), 1), 1000))
			}
			t.account.State, t.account.CPU = t.vcpu.State, t.vcpu.PCPU
			c.accounts = append(c.accounts, &t.account)
		}
	}
	if known {
		hypervisor.Settle(c.accounts, passed)
	}
}

// first reports whether t rather than u counts as running, of those on one CPU: the one that was seen to run, or
// else, since only the sampling may have displaced it, the one with most credit.
func first(t, u *thread) bool {
	if u == nil {
		return true
	}
	if runs := t.vcpu.State == vcpu.Running; runs || u.vcpu.State == vcpu.Running {
		return runs
	}
	return t.account.Credit > u.account.Credit
}

// foretell sets each thread's state and its predicted part of the coming period.
func (c *CPUs) foretell(seen [][]*thread, period time.Duration) {
	hypervisor.Foretell(c.accounts, period)
	running := make(map[int]*thread) // by CPU
	for _, threads := range seen {
		for _, t := range threads {
			t.vcpu.Next = t.account.Next
			if t.vcpu.State != vcpu.Blocked && first(t, running[t.vcpu.PCPU]) {
				running[t.vcpu.PCPU] = t
			}
		}
	}
	for _, t := range running {
		t.vcpu.State = vcpu.Running
	}
}
