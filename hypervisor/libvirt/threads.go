package libvirt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pegasus/hypervisor"
)

// MachineRun identifies a run of a machine, in which its vCPU threads stay the same.
type MachineRun struct {
	Name  string
	ID    uint // of the emulator
	VCPUs int
	State hypervisor.MachineState
}

// Threads holds the vCPU threads of the machines of one libvirt. QEMU is queried once for each run of a
// machine, in a goroutine that lives for QueryTime at most. A query that fails is repeated by a later
// call of Of, after pauses that grow: libvirtd keeps a thread of its own occupied for each query that
// QEMU doesn't answer. A machine has one query in flight at most.
type Threads struct {
	Query   func(ctx context.Context, machine string) (pid int, vcpus []int, err error)
	Changed func()       // called after a query with new results
	Log     func(string) // called with a line when a machine's queries begin to fail, and when they succeed again

	mu       sync.Mutex
	known    map[string]*answer // by machine
	inFlight map[string]bool    // by machine, also of those that were forgotten
}

// answer is the state of the query for a machine.
type answer struct {
	run    MachineRun
	done   bool
	pid    int
	vcpus  []int
	failed int       // queries since the last that succeeded, of this emulator
	again  time.Time // when the next query may begin
	said   string    // the last failure that was logged
}

// QueryTime is how long QEMU may take to answer.
const QueryTime = 5 * time.Second

// The pause after a query that failed doubles from the first to the longest.
const (
	firstPause   = 3 * time.Second
	longestPause = time.Minute
)

// maxQueries bounds the queries of all machines that are in flight at once. libvirtd has twenty threads
// for all of its clients.
const maxQueries = 8

var errNoAnswer = fmt.Errorf("QEMU hasn't answered within %v", QueryTime)

// Of returns the process and the vCPU threads of a machine, as far as queries have returned them. It never blocks.
func (t *Threads) Of(run MachineRun) (pid int, vcpus []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known, t.inFlight = map[string]*answer{}, map[string]bool{}
	}
	a := t.known[run.Name]
	if a == nil || a.run != run {
		next := &answer{}
		if a != nil && a.run.ID == run.ID { // valid until the next answer, and queried no sooner
			*next = *a
		}
		next.run, next.done = run, false
		t.known[run.Name], a = next, next
	}
	if !a.done && !t.inFlight[run.Name] && len(t.inFlight) < maxQueries && !time.Now().Before(a.again) {
		t.inFlight[run.Name] = true
		go t.query(a)
	}
	return a.pid, a.vcpus
}

func (t *Threads) query(a *answer) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), QueryTime, errNoAnswer)
	defer cancel()
	pid, vcpus, err := t.Query(ctx, a.run.Name)
	t.mu.Lock()
	delete(t.inFlight, a.run.Name)
	line := a.end(pid, vcpus, err)
	current := t.known[a.run.Name] == a
	t.mu.Unlock()
	if line != "" && current {
		t.Log(line)
	}
	if err == nil || !current { // a run that has changed since waits for its turn
		t.Changed()
	}
}

// end records the outcome of a query, and returns the line to log.
func (a *answer) end(pid int, vcpus []int, err error) string {
	if err == nil {
		a.pid, a.vcpus, a.done = pid, vcpus, true
		if a.said != "" {
			a.said = ""
			return fmt.Sprintf("query the vCPU threads of %s: QEMU answers again", a.run.Name)
		}
		return ""
	}
	pause := min(firstPause<<min(a.failed, 10), longestPause)
	a.failed++
	a.again = time.Now().Add(pause)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errNoAnswer
	}
	if a.said == err.Error() {
		return ""
	}
	a.said = err.Error()
	return fmt.Sprintf("query the vCPU threads of %s: %v; querying again in %v, then in pauses of up to %v", a.run.Name, err, pause, longestPause)
}

// Forget drops all machines except the running ones in there.
func (t *Threads) Forget(there []Machine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := map[string]*answer{}
	for _, m := range there {
		if a := t.known[m.Name]; a != nil && m.State != hypervisor.MachineOff {
			left[m.Name] = a
		}
	}
	t.known = left
	if t.inFlight == nil {
		t.inFlight = map[string]bool{}
	}
}
