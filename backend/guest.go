package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode"

	"pegasus/backend/worker"
	"pegasus/callbuf"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// The CUresults that a guest is refused with.
const (
	resultOutOfMemory        = 2
	resultDeinitialized      = 4
	resultDevicesUnavailable = 46
	resultSystemNotReady     = 802
)

// deathGrace is how long a worker may take to end after its guest process has.
const deathGrace = 600 * time.Millisecond

// guest is one guest process that is served: its seat in its domain and its
// worker process. All but ended and cpu doesn't change once worker is set, with the daemon's mu held.
type guest struct {
	id    uint64
	dom   *domain
	slot  int // in the gate page
	win   int // slice of the device window
	arena uint64
	pid   int // of the guest process, 0 if it is none of this host

	process   *os.File      // pidfd of the guest process; nil if it is none of this host
	worker    *os.File      // pidfd of the worker
	workerPID int           //
	conn      *net.UnixConn // to the worker's descriptor 3
	cmd       *exec.Cmd     // to be waited for; nil if a daemon before started it
	serving   chan struct{} // closed when the worker serves
	gone      chan struct{} // closed when its seat is free
	doomed    bool          // its worker is to end as soon as there is one
	ended     bool          // its worker has ended, and cpu is final
	cpu       int64         // ns that its worker has had of the host's CPUs, as last read
}

// receive serves a guest process that knocked.
func (d *Daemon) receive(ctx context.Context, dom *domain, n hypervisor.Newcomer) {
	d.count(&d.arriving, 1)
	defer d.count(&d.arriving, -1)
	if p := n.Process(); p != nil {
		defer p.Close()
	}
	g, err := d.admit(ctx, dom, n)
	if err == nil {
		d.noteOf(dom, "guest", "%s is served by worker %d", who(g.pid), g.workerPID)
		return
	}
	if d.ctx.Err() != nil { // its connection ends without an answer, and it comes to the next daemon
		return
	}
	d.noteOf(dom, "refused", "%s: %v", who(n.PID()), err)
	result := int32(resultSystemNotReady)
	if errors.Is(err, errNoRoom) || errors.Is(err, errTooMany) {
		result = resultDevicesUnavailable
	}
	if err := n.Refuse(result, err.Error()); err != nil {
		d.log.Debug("refuse a guest", "domain", dom.name, "err", err)
	}
}

// who names a guest process for people.
func who(pid int) string {
	if pid == 0 {
		return "a process of its machine"
	}
	return fmt.Sprintf("process %d", pid)
}

func (d *Daemon) count(n *int, by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n += by
	d.restIfIdle()
}

// admit finds a seat, starts a worker in it and tells the guest.
func (d *Daemon) admit(ctx context.Context, dom *domain, n hypervisor.Newcomer) (*guest, error) {
	arena := uint64(math.MaxUint64)
	if l, ok := n.(hypervisor.Lender); ok && l.MostBytes() != 0 {
		arena = l.MostBytes()
	}
	g, err := d.settle(ctx, dom, arena)
	if err != nil {
		return nil, err
	}
	d.introduce(g, n.PID())
	if err := d.startWorker(ctx, g, n); err != nil {
		d.unseat(g)
		return nil, err
	}
	return g, nil
}

// startWorker gives a seat its worker, when few enough of its domain are starting.
func (d *Daemon) startWorker(ctx context.Context, g *guest, n hypervisor.Newcomer) error {
	if g.dom.on.current().Type != "soft" { // whose kernels need no processor of the host
		return d.employ(g, n)
	}
	took, err := g.dom.starts.enter(ctx)
	if err != nil {
		return err
	}
	if took {
		d.tasks.Go(func() { g.dom.starts.leaveAfter(g.serving, g.gone) })
	}
	if p := n.Process(); p != nil && hasExited(p) {
		return errors.New("the process has ended")
	}
	return d.employ(g, n)
}

// introduce notes whose seat it is, which tells more of its domain's CPU side.
func (d *Daemon) introduce(g *guest, pid int) {
	d.mu.Lock()
	g.pid = pid
	d.mu.Unlock()
	d.weighSoon()
}

// employ gives a seat its worker. When it fails nothing of it is left but the seat.
func (d *Daemon) employ(g *guest, n hypervisor.Newcomer) error {
	if p := n.Process(); p != nil {
		var err error
		if g.process, err = dupProcess(p); err != nil {
			return err
		}
	}
	offer, err := d.hire(g, n)
	if err == nil {
		err = n.Admit(offer.welcome, offer.segment, offer.socket)
		offer.close()
		if err != nil {
			kill(g.worker)
		}
	}
	if err != nil && g.worker == nil {
		closeFile(g.process)
		return err
	}
	// From here on the end of the worker process is what frees the seat.
	d.tasks.Go(func() { d.attend(g) })
	if err != nil {
		d.noteOf(g.dom, "refused", "%s left before it was served: %v", who(g.pid), err)
	}
	return nil
}

// offer is what a guest is welcomed with.
type offer struct {
	welcome         callbuf.Welcome
	segment, socket *os.File
}

func (o *offer) close() {
	o.segment.Close()
	o.socket.Close()
}

// attend waits for the end of a worker and cleans up behind it. A worker that
// outlives its guest process is ended.
func (d *Daemon) attend(g *guest) {
	ctx, done := context.WithCancel(d.ctx)
	defer done()
	if g.process != nil {
		d.tasks.Go(func() {
			if awaitExit(ctx, g.process) != nil {
				return
			}
			if d.outlives(ctx, g) {
				d.noteOf(g.dom, "outlived", "worker %d outlives process %d: ending it", g.workerPID, g.pid)
				kill(g.worker)
			}
		})
	}
	said, gone := make(chan string, 1), make(chan struct{})
	d.tasks.Go(func() { said <- d.hear(g, gone) })
	if err := awaitExit(d.ctx, g.worker); err != nil {
		g.conn.SetReadDeadline(time.Now()) // the daemon ends; the worker goes on
		return
	}
	close(gone)
	d.lastTime(g)
	g.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	how := <-said + g.reap()
	d.unseat(g)
	d.noteOf(g.dom, "end", "worker %d of %s ended%s", g.workerPID, who(g.pid), how)
}

// standing is what a worker is told that may change while it runs. d.mu is held.
func (g *guest) standing() worker.Order {
	share := shareOf(g.dom.settings)
	return worker.Order{KernelTimeout: g.dom.on.current().KernelTimeout, Share: &share}
}

func shareOf(s configs.Domain) worker.Share {
	return worker.Share{Guarantee: uint64(s.Guarantee), Priority: s.Priority}
}

// order tells a worker what to do. A worker that has ended needs no orders, and one that leaves a
// hundred of them unread gets no more.
func (g *guest) order(o worker.Order) { worker.SendOrder(g.conn, o) }

// dismiss has a worker end, in which it tells its process first why no call succeeds any more: that may live on, where
// its machine is only served no more. d.mu is held.
func (d *Daemon) dismiss(g *guest) {
	g.order(worker.Order{End: resultDeinitialized})
	d.tasks.Go(func() {
		if d.outlives(d.ctx, g) || d.storing(g) == 0 { // or the daemon ends, and nobody would see to it later
			kill(g.worker)
		}
	})
}

// reap collects the exit status of a worker that has ended, if it is a child of ours.
func (g *guest) reap() string {
	if g.cmd == nil {
		return ""
	}
	err := g.cmd.Wait()
	if err == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", err)
}

// hearEvery is how far apart the reports of a living worker are taken.
const hearEvery = 10 * time.Millisecond

// hear notes the faults that a worker reports, until it ends or the read deadline of its connection passes. It returns the
// reason that the worker gave for its end, if any. gone is closed when the worker has ended.
func (d *Daemon) hear(g *guest, gone <-chan struct{}) string {
	serves := sync.OnceFunc(func() { close(g.serving) })
	for {
		r, err := worker.ReceiveReport(g.conn)
		var closed *net.OpError
		switch {
		case errors.Is(err, io.EOF), errors.As(err, &closed):
			return ""
		case err != nil: // what it sent is no report
		case r.State == worker.Serving:
			serves()
		case r.State == worker.Faulted:
			d.noteOf(g.dom, "fault", "%s: %s", who(g.pid), clip(r.Why))
		case r.State == worker.Ended && r.Why != "":
			return ": " + clip(r.Why)
		}
		select {
		case <-gone:
		case <-time.After(hearEvery):
		}
	}
}

// mostSaid bounds what a worker's reason adds to a line of the log, in bytes.
const mostSaid = 400

// clip shortens a text that a worker wrote, which a guest may have chosen, and leaves what is printable on one line.
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

// errTooMany is when a domain has as many processes as it may.
var errTooMany = errors.New("too many processes")

// leastArena is what an arena has at least, as configs has it.
const leastArena = uint64(configs.MiB)

// seat reserves what one more guest process needs, with an arena of most bytes at most. d.mu is
// held, the domain placed.
func (d *Daemon) seat(dom *domain, most uint64) (*guest, error) {
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
	win, ok := d.freeSlice()
	if !ok {
		return nil, fmt.Errorf("domain %q: %w: the host serves %d, as many as it can", dom.name, errTooMany, callbuf.MaxDeviceSlices)
	}
	slot, err := dom.avcpu.page.TakeSlot()
	if err != nil {
		return nil, fmt.Errorf("domain %q: %w: %w", dom.name, errTooMany, err)
	}
	d.takeUID(dom)
	d.nextGuest++
	g := &guest{id: d.nextGuest, dom: dom, slot: slot, win: win, arena: arena, serving: make(chan struct{}), gone: make(chan struct{})}
	d.slices[win] = true
	dom.guests[g] = struct{}{}
	d.guests[g.id] = g
	return g, nil
}

func (d *Daemon) freeSlice() (int, bool) {
	for i := range callbuf.MaxDeviceSlices {
		if !d.slices[i] {
			return i, true
		}
	}
	return 0, false
}

// expel ends all workers of a domain, of which one has written over the domain's pages; which worker did so is unknown.
func (d *Daemon) expel(m *avcpu) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := d.domains[m.domain]
	if dom == nil || dom.avcpu != m {
		return
	}
	d.noteOf(dom, "forged", "a worker has written over the pages that the domain's workers share with the daemon: ending the domain's %d workers", len(dom.guests))
	for g := range dom.guests {
		g.doomed = true
		if g.worker != nil {
			kill(g.worker)
		}
	}
	dom.on.expelled(m)
}

// unseat gives back all that a guest process had, its worker being dead.
func (d *Daemon) unseat(g *guest) {
	m := g.dom.avcpu // which stays while g is in the domain
	d.vacateSeat(g)
	d.clearSegments(g.dom, m)
	close(g.gone)
}

func (d *Daemon) vacateSeat(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dom := g.dom
	dom.on.hw.Reap(dom.name, g.workerPID)
	d.reap(dom, g.slot)
	dom.past.CPU += g.cpuTime()
	delete(dom.guests, g)
	delete(d.guests, g.id)
	delete(d.slices, g.win)
	d.strike(g.id)
	g.close()
	d.leave(dom)
	d.makeRoom()
	d.restIfIdle()
}

// reap frees a slot of a domain's page, whose worker is dead. d.mu is held; the caller calls
// clearSegments without it afterwards.
func (d *Daemon) reap(dom *domain, slot int) {
	if st, ok := dom.avcpu.page.Statistics(slot); ok {
		dom.past.add(&st)
	}
	dom.on.reap(dom.avcpu, slot)
	d.changed = true
}

func (g *guest) close() {
	closeFile(g.process)
	closeFile(g.worker)
	if g.conn != nil {
		g.conn.Close()
	}
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}

// endGuests ends all workers, with their guests' CUDA.
func (d *Daemon) endGuests() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.guests {
		if g.worker != nil {
			kill(g.worker)
		}
	}
}

// reapGuests waits until the workers that endGuests ended are gone. Nobody
// attends to them any more.
func (d *Daemon) reapGuests() {
	for _, g := range d.guests {
		g.reap()
	}
}
