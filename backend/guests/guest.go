package guests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"pegasus/backend/pidfd"
	"pegasus/backend/worker"
	"pegasus/backend/workers"
	"pegasus/callbuf"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// CUresults with which guests are rejected.
const (
	resultOutOfMemory        = 2
	resultDeinitialized      = 4
	resultDevicesUnavailable = 46
	resultSystemNotReady     = 802
)

// deathGrace is how long a worker may take to end after its guest process has ended.
const deathGrace = 600 * time.Millisecond

// guest is one served guest process: its seat in its domain and its worker process. Once worker is set, only ended and
// cpu change, with Registry.mu held.
type guest struct {
	id    uint64
	dom   *domain
	slot  int // in the gate page
	win   int // slice of the device window
	arena uint64
	pid   int // of the guest process; 0 if that is not on this host

	process *os.File         // pidfd of the guest process; nil if that is not on this host
	worker  *workers.Process // nil until it has its job
	serving chan struct{}    // closed when the worker serves
	gone    chan struct{}    // closed when its seat is free
	doomed  bool             // its worker must end as soon as it exists
	ended   bool             // its worker has ended, and cpu is final
	cpu     int64            // ns of its worker on the host's CPUs, as last read
	idle    int64            // ns without work, as last sampled; 0: never
}

// workerPID returns the PID of its worker, or 0 while it has none.
func (g *guest) workerPID() int {
	if g.worker == nil {
		return 0
	}
	return g.worker.PID
}

// processName returns the name of a guest process for log lines.
func processName(pid int) string {
	if pid == 0 {
		return "a process of its machine"
	}
	return fmt.Sprintf("process %d", pid)
}

func (reg *Registry) count(n *int, by int) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	*n += by
	reg.restIfIdle()
}

// startInTurn starts a seat's worker, after a wait while too many workers of its domain are starting.
func (g *guest) startInTurn(ctx context.Context, n hypervisor.Connection) error {
	reg := g.dom.reg
	if g.dom.on.Settings().Type != "soft" { // other types' kernels need no processor of the host
		return g.start(n)
	}
	took, err := g.dom.starts.Enter(ctx)
	if err != nil {
		return err
	}
	if took {
		reg.tasks.Go(func() { g.dom.starts.LeaveAfter(g.serving, g.gone) })
	}
	if p := n.Process(); p != nil && pidfd.HasExited(p) {
		return errors.New("the process has ended")
	}
	return g.start(n)
}

// setProcess sets the pid of the seat's guest process, which identifies the domain's CPU side.
func (g *guest) setProcess(pid int) {
	reg := g.dom.reg
	reg.mu.Lock()
	g.pid = pid
	reg.mu.Unlock()
	reg.cpus.WeighSoon()
}

// start starts a seat's worker. After an error only the seat is left.
func (g *guest) start(n hypervisor.Connection) error {
	reg := g.dom.reg
	if p := n.Process(); p != nil {
		var err error
		if g.process, err = pidfd.Dup(p); err != nil {
			return err
		}
	}
	offer, err := g.startWorker(n)
	if err == nil {
		err = n.Admit(offer.welcome, offer.segment, offer.socket)
		offer.close()
		if err != nil {
			g.worker.Kill()
		}
	}
	if err != nil && g.worker == nil {
		closeFile(g.process)
		return err
	}
	// From here on the end of the worker process frees the seat.
	reg.tasks.Go(func() { g.attend() })
	if err != nil {
		g.dom.note("refused", "%s left before it was served: %v", processName(g.pid), err)
	}
	return nil
}

// offer holds the parts of a guest's welcome.
type offer struct {
	welcome         callbuf.Welcome
	segment, socket *os.File
}

func (o *offer) close() {
	o.segment.Close()
	o.socket.Close()
}

// attend waits for the end of a worker and releases its resources. It ends a worker that outlives its guest process.
func (g *guest) attend() {
	reg := g.dom.reg
	ctx, done := context.WithCancel(reg.ctx)
	defer done()
	if g.process != nil {
		reg.tasks.Go(func() {
			if pidfd.AwaitExit(ctx, g.process) != nil {
				return
			}
			if g.outlives(ctx) {
				g.dom.note("outlived", "worker %d outlives process %d; ending the worker", g.worker.PID, g.pid)
				g.worker.Kill()
			}
		})
	}
	reason, ended := make(chan string, 1), make(chan struct{})
	reg.tasks.Go(func() { reason <- g.logReports(ended) })
	if err := g.worker.Await(reg.ctx); err != nil {
		g.worker.StopReports(time.Now()) // the daemon ends; the worker continues
		return
	}
	close(ended)
	g.readFinalCPUTime()
	g.worker.StopReports(time.Now().Add(100 * time.Millisecond))
	how, failure := <-reason, g.worker.Reap()
	kind := "end"
	if failure != "" && !g.worker.Killed() {
		kind = "crash"
	}
	how += failure
	g.unseat()
	g.dom.note(kind, "worker %d of %s ended%s", g.worker.PID, processName(g.pid), how)
}

// standing returns the order with the worker's settings that may change while it runs. Registry.mu is held.
func (g *guest) standing() worker.Order {
	share := shareOf(g.dom.settings)
	return worker.Order{KernelTimeout: g.dom.on.Settings().KernelTimeout, Share: &share, LogLevel: g.dom.reg.logLevel()}
}

func shareOf(s configs.Domain) worker.Share {
	return worker.Share{Guarantee: uint64(s.Guarantee), Priority: s.Priority}
}

// dismiss orders a worker to end. The worker first publishes the error for all later calls of its process, which may
// live on if only the service for its machine has ended. Registry.mu is held.
func (g *guest) dismiss() {
	reg := g.dom.reg
	g.worker.Order(worker.Order{End: resultDeinitialized})
	reg.tasks.Go(func() {
		if g.outlives(reg.ctx) || g.storeTime() == 0 { // or the daemon ends, and could not kill it later
			g.worker.Kill()
		}
	})
}

// logReports logs the faults that a worker reports, until it ends. It returns the worker's reason for its end, if any.
// ended is closed when the worker has ended.
func (g *guest) logReports(ended <-chan struct{}) (reason string) {
	serves := sync.OnceFunc(func() { close(g.serving) })
	g.worker.Reports(ended, func(r worker.Report) bool {
		switch {
		case r.State == worker.Serving:
			serves()
		case r.State == worker.Faulted:
			g.dom.note("fault", "%s: %s", processName(g.pid), clip(r.Why))
		case r.State == worker.Ended && r.Why != "":
			reason = ": " + clip(r.Why)
			return false
		}
		return true
	})
	return reason
}

// mostSaid bounds the bytes of a worker's reason in a log line.
const mostSaid = 400

// clip shortens a text that a worker wrote, which a guest may have chosen, and replaces unprintable characters so that
// it stays on one line.
func clip(s string) string {
	more := ""
	if len(s) > mostSaid {
		s, more = strings.ToValidUTF8(s[:mostSaid], ""), "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s) + more
}

// errTooMany reports that a domain has as many processes as it may.
var errTooMany = errors.New("too many processes")

// leastArena is the least size of an arena, as in configs.
const leastArena = uint64(configs.MiB)

// seat reserves the resources of one more guest process, with an arena of at most most bytes. Registry.mu is held, and
// the domain is placed.
func (dom *domain) seat(most uint64) (*guest, error) {
	reg := dom.reg
	if len(dom.guests) >= dom.settings.Processes {
		return nil, fmt.Errorf("domain %q: %w: %d, and processes = %d is its limit", dom.name, errTooMany, len(dom.guests), dom.settings.Processes)
	}
	if most < leastArena {
		return nil, fmt.Errorf("domain %q: its machine has memory for an arena of %d bytes: it takes %d", dom.name, most, leastArena)
	}
	arena := min(uint64(dom.settings.Arena), most&^(callbuf.HeaderBytes-1))
	if host := dom.hostMemory(); dom.settings.HostMemory != 0 && host+arena > uint64(dom.settings.HostMemory) {
		return nil, fmt.Errorf("domain %q: %w: their arenas come to %d bytes, one more is %d, and host_memory = %q is its limit",
			dom.name, errTooMany, host, arena, dom.settings.HostMemory)
	}
	win, ok := reg.freeSlice()
	if !ok {
		return nil, fmt.Errorf("domain %q: %w: the host serves %d, as many as it can", dom.name, errTooMany, callbuf.MaxDeviceSlices)
	}
	slot, err := dom.attachment.Page.TakeSlot()
	if err != nil {
		return nil, fmt.Errorf("domain %q: %w: %w", dom.name, errTooMany, err)
	}
	if dom.uid == 0 {
		dom.uid = reg.workers.TakeUID()
	}
	reg.nextGuest++
	g := &guest{id: reg.nextGuest, dom: dom, slot: slot, win: win, arena: arena, serving: make(chan struct{}), gone: make(chan struct{})}
	reg.slices[win] = true
	dom.guests[g] = struct{}{}
	reg.guests[g.id] = g
	reg.shareProcessors()
	return g, nil
}

func (s *seats) freeSlice() (int, bool) {
	for i := range callbuf.MaxDeviceSlices {
		if !s.slices[i] {
			return i, true
		}
	}
	return 0, false
}

// unseat releases all resources of a guest process after its worker's death.
func (g *guest) unseat() {
	m := g.dom.attachment // which stays while g is in the domain
	g.vacateSeat()
	g.dom.clearSegments(m)
	close(g.gone)
}

func (g *guest) vacateSeat() {
	reg := g.dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	dom := g.dom
	dom.on.Hardware.Reap(dom.name, g.workerPID())
	dom.reap(g.slot)
	dom.past.CPU += g.cpuTime()
	delete(dom.guests, g)
	delete(reg.guests, g.id)
	delete(reg.slices, g.win)
	reg.shareProcessors()
	reg.workers.Strike(g.id)
	g.close()
	dom.leave()
	reg.makeRoom()
	reg.restIfIdle()
}

// reap frees the slot of a dead worker in a domain's page. Registry.mu is held; the caller calls clearSegments
// afterwards, without it.
func (dom *domain) reap(slot int) {
	reg := dom.reg
	if st, ok := dom.attachment.Page.Statistics(slot); ok {
		dom.past.add(&st)
	}
	dom.on.Reap(dom.attachment, slot)
	reg.store.changed = true
}

func (g *guest) close() {
	closeFile(g.process)
	if g.worker != nil {
		g.worker.Close()
	}
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}

// endGuests kills all workers, and with them their guests' CUDA contexts.
func (reg *Registry) endGuests() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, g := range reg.guests {
		if g.worker != nil {
			g.worker.Kill()
		}
	}
}

// reapGuests blocks until the workers that endGuests killed are gone. No attend goroutine runs any more.
func (reg *Registry) reapGuests() {
	for _, g := range reg.guests {
		if g.worker != nil {
			g.worker.Reap()
		}
	}
}

// cpuTime returns a worker's time on the host's CPUs in nanoseconds, as last readable. Registry.mu is held.
func (g *guest) cpuTime() int64 {
	if g.worker == nil || g.ended {
		return g.cpu
	}
	if ns, ok := g.worker.CPUTime(); ok {
		g.cpu = max(g.cpu, ns)
	}
	return g.cpu
}

// readFinalCPUTime reads the CPU time of an ended worker, which is final.
func (g *guest) readFinalCPUTime() {
	reg := g.dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	g.cpuTime()
	g.ended = true
}
