package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
	"pegasus/backend/gate"
	"pegasus/backend/sched"
	"pegasus/backend/worker"
	"pegasus/configs"
)

// adoptTime bounds the time in which a worker must identify itself.
const adoptTime = 2 * time.Second

// record is the description of a worker that a daemon saves for the next one. The next daemon trusts it more than the
// worker, which has executed guests' input.
type record struct {
	Domain      string `json:"domain"`
	Accelerator string `json:"accelerator"`
	PID         int    `json:"pid"`
	UID         int    `json:"uid"`
	Guest       int    `json:"guest"`
	Slot        int    `json:"slot"`
	Slice       int    `json:"slice"`
	Arena       uint64 `json:"arena"`
}

func (d *Daemon) recordPath(id uint64) string {
	return filepath.Join(d.opt.RuntimeDir, "workers", fmt.Sprintf("%d.json", id))
}

// writeDown saves the record of the worker that is about to serve a guest.
func (d *Daemon) writeDown(g *guest, worker int) error {
	if d.opt.Private {
		return nil
	}
	d.mu.Lock()
	r := record{g.dom.name, g.dom.on.Name, worker, g.dom.uid, g.pid, g.slot, g.win, g.arena}
	d.mu.Unlock()
	if err := writeJSON(d.recordPath(g.id), r); err != nil {
		return fmt.Errorf("write down a worker: %w", err)
	}
	return nil
}

// writeJSON replaces a file of the daemon atomically.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	err = os.WriteFile(path+".new", data, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		os.Remove(path + ".new")
	}
	return err
}

// survivor is a worker that a previous daemon left running.
type survivor struct {
	id    uint64
	conn  *net.UnixConn
	files worker.Files
	record
}

// survivors returns the workers that are alive, and removes the files of the others.
func (d *Daemon) survivors() ([]*survivor, error) {
	sockets, err := filepath.Glob(filepath.Join(d.opt.RuntimeDir, "workers", "*.sock"))
	if err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex
		left []*survivor
		all  sync.WaitGroup
	)
	slots := make(chan struct{}, 32)
	for _, path := range sockets {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s, err := d.meet(path)
			if err != nil {
				d.log.Warn("a worker of the daemon before can't be taken over", "socket", path, "err", err)
			}
			if s != nil {
				mu.Lock()
				defer mu.Unlock()
				left = append(left, s)
			}
		})
	}
	all.Wait()
	slices.SortFunc(left, func(a, b *survivor) int { return cmp.Compare(a.id, b.id) })
	return left, nil
}

// meet connects to the worker at a socket and identifies it. It returns nil for a dead worker, and ends a worker that
// does not match its record.
func (d *Daemon) meet(path string) (*survivor, error) {
	s := &survivor{}
	var err error
	if s.id, err = strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".sock"), 10, 64); err != nil {
		return nil, os.Remove(path)
	}
	if s.conn, err = dialWorker(path); err != nil {
		if r, err := readRecord(d.recordPath(s.id)); err == nil {
			if p, err := openProcess(r.PID); err == nil { // it may be ending
				awaitDeath(p)
			}
		}
		d.strike(s.id)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	if err := s.identify(d.recordPath(s.id)); err != nil {
		s.conn.Close()
		s.files.Close()
		s.end()
		d.strike(s.id)
		return nil, err
	}
	return s, nil
}

// strike removes the files of a worker that has ended. A next daemon finds workers by their sockets: a socket left
// without a record, by a daemon killed between the two removals, is removed then.
func (d *Daemon) strike(id uint64) {
	os.Remove(d.recordPath(id))
	os.Remove(d.workerSocket(id))
}

// dialWorker connects to a worker's socket if root or the daemon's user made it.
func dialWorker(path string) (*net.UnixConn, error) {
	c, err := worker.DialSurvivor(path)
	if err != nil {
		return nil, err
	}
	p, err := control.PeerOf(c)
	if err == nil && p.UID != 0 && p.UID != os.Geteuid() {
		err = fmt.Errorf("its socket was made by user %d", p.UID)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// identify compares the worker's description with its record. If they differ, or one is missing, it still sets the PID
// for end.
func (s *survivor) identify(path string) error {
	written, err := readRecord(path)
	s.conn.SetDeadline(time.Now().Add(adoptTime))
	defer s.conn.SetDeadline(time.Time{})
	said, files, asked := worker.ReceiveSurvivor(s.conn)
	s.files, s.PID = files, cmp.Or(written.PID, said.PID)
	if asked != nil {
		asked = fmt.Errorf("ask it who it is: %w", asked)
	}
	if err := errors.Join(err, asked); err != nil {
		return err
	}
	j := said.Job
	s.record = record{j.Domain, j.Accelerator.Name, said.PID, j.UID, j.GuestPID, j.Slot, j.Slice, j.Geometry.ArenaBytes}
	if j.ID != s.id || s.record != written {
		return fmt.Errorf("it says %+v, but %+v was written down", s.record, written)
	}
	return nil
}

func readRecord(path string) (r record, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// end kills the worker and blocks until it is dead, so that its resources on an accelerator can be reclaimed.
func (s *survivor) end() {
	if s.PID == 0 {
		return
	}
	if p, err := openProcess(s.PID); err == nil {
		kill(p)
		awaitDeath(p)
	}
}

// awaitDeath blocks until a process ends, for at most adoptTime. It closes p.
func awaitDeath(p *os.File) {
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adoptTime)
	defer cancel()
	awaitExit(ctx, p)
}

// shared returns the files of an accelerator that its survivors still use. The caller owns the bell.
func shared(left []*survivor, accelerator string) (hardware []*os.File, bell *os.File) {
	for _, s := range left {
		if s.Accelerator == accelerator {
			bell, s.files.Bell = s.files.Bell, nil
			return s.files.Hardware, bell
		}
	}
	return nil, nil
}

// adopt takes over the survivors: their domains keep their accelerator, memory and accounts. d.mu is held.
func (d *Daemon) adopt(left []*survivor) {
	for _, s := range left {
		if err := d.adoptOne(s); err != nil {
			d.log.Warn("a worker of the daemon before can't be taken over: ending it", "worker", s.PID, "domain", s.Domain, "err", err)
			s.end()
			if a := d.accelerator(s.Accelerator); a != nil {
				a.Hardware.Reap(s.Domain, s.PID)
			}
			s.conn.Close()
			d.strike(s.id)
		} else {
			d.adopted++
		}
		s.files.Close()
	}
	for _, dom := range d.domains {
		d.vacate(dom)
	}
	for _, a := range d.accelerators {
		var here, accounts []string
		for _, dom := range d.domains {
			if dom.on == a {
				here, accounts = append(here, dom.name), append(accounts, dom.name)
			} else if left := a.Hardware.OpenAccount(dom.name); left != nil { // the previous daemon ended before it closed it
				a.ChargeAbsent(dom.settings, left)
				if dom.account != nil && dom.account != left { // the domain has one on another accelerator
					left.Close()
					continue
				}
				dom.account, d.changed = left, true // save closes it
				accounts = append(accounts, dom.name)
			}
		}
		a.Hardware.KeepCommons(here) // other domains may have left while no daemon ran
		a.Hardware.KeepAccounts(accounts)
	}
	if d.adopted > 0 {
		d.note("adopt", "", "took over %d workers", d.adopted)
	}
}

func (d *Daemon) adoptOne(s *survivor) error {
	dom, err := d.homeOf(s.Domain)
	if err != nil {
		return err
	}
	a := d.accelerator(s.Accelerator)
	switch {
	case a == nil:
		return fmt.Errorf("accelerator %q is no longer configured", s.Accelerator)
	case dom.on != nil && dom.on != a:
		return fmt.Errorf("its domain is on %s and on %s", a.Name, dom.on.Name)
	case s.Slot < 0 || s.Slot >= gate.Slots || d.slices[s.Slice]:
		return fmt.Errorf("slot %d, window %d can't be", s.Slot, s.Slice)
	}
	g, err := survivingGuest(dom, s)
	if err != nil {
		return err
	}
	if err := d.takeOver(a, dom, s); err != nil {
		g.close()
		return err
	}
	d.resume(g, s)
	return nil
}

// takeOver attaches a survivor's domain to its accelerator with the survivor's gate page, or, if the domain is attached
// already, checks that both have the same page. d.mu is held.
func (d *Daemon) takeOver(a *accelerator, dom *domain, s *survivor) error {
	if dom.on == nil {
		if err := d.openAccount(dom, a); err != nil {
			return err
		}
		if err := sameHardware(a.Hardware.Files(dom.name), s.files.Hardware); err != nil {
			return err
		}
		page, err := gate.Adopt(s.files.Gate)
		if err != nil {
			return err
		}
		store := s.files.Store
		s.files.Gate, s.files.Store = nil, nil
		setQuotas(page, dom.settings)
		dom.on, dom.attachment = a, a.Attach(dom.settings, dom.cpu.Credits, page, store, dom.account)
		return nil
	}
	if !sameFile(s.files.Gate, dom.attachment.Page.File()) {
		return errors.New("its gate page isn't that of its domain")
	}
	return sameHardware(a.Hardware.Files(dom.name), s.files.Hardware)
}

// sameHardware returns an error unless a worker's accelerator files are those of its domain.
func sameHardware(want, has []*os.File) error {
	if !slices.EqualFunc(want, has, sameFile) {
		return errors.New("what it has of the accelerator isn't what one of its domain has")
	}
	return nil
}

// homeOf returns a survivor's domain, whether or not the configuration declares it. d.mu is held.
func (d *Daemon) homeOf(name string) (*domain, error) {
	if dom := d.domains[name]; dom != nil {
		return dom, nil
	}
	if _, err := d.config.Domain(name); err != nil && configs.CheckName(name) == nil {
		return d.stranger(name, configs.Domain{}), nil
	}
	return d.domain(name)
}

// survivingGuest returns a guest for a survivor, or an error if that has ended meanwhile.
func survivingGuest(dom *domain, s *survivor) (*guest, error) {
	p, err := openProcess(s.PID)
	if err != nil {
		return nil, err
	}
	g := &guest{id: s.id, dom: dom, slot: s.Slot, win: s.Slice, pid: s.Guest, arena: s.Arena,
		worker: p, workerPID: s.PID, conn: s.conn, serving: make(chan struct{}), gone: make(chan struct{})}
	if s.files.GuestProcess != nil {
		if g.process, err = dupProcess(s.files.GuestProcess); err != nil {
			p.Close()
			return nil, err
		}
	}
	return g, nil
}

// resume serves a guest of the previous daemon. d.mu is held.
func (d *Daemon) resume(g *guest, s *survivor) {
	dom := g.dom
	if s.UID != 0 {
		dom.uid = s.UID
		d.uids[s.UID] = true
	}
	d.slices[g.win] = true
	d.guests[g.id] = g
	d.nextGuest = max(d.nextGuest, g.id)
	dom.guests[g] = struct{}{}
	g.order(g.standing())
	d.tasks.Go(func() { d.attend(g) })
}

// vacate frees the slots of a domain's page that no guest of the domain has. Their workers ended while no daemon ran,
// or never joined, and their resources would count until the domain's last process ends. d.mu is held.
func (d *Daemon) vacate(dom *domain) {
	if dom.on == nil {
		return
	}
	slots := dom.attachment.Page.Occupants()
	for g := range dom.guests {
		delete(slots, g.slot)
	}
	freed := false
	for slot, pid := range slots {
		p, err := openProcess(pid)
		if err != nil && pid != 0 && !errors.Is(err, unix.ESRCH) {
			d.log.Warn("a worker's slot stays taken", "domain", dom.name, "worker", pid, "err", err)
			continue
		}
		if err != nil || hasExited(p) {
			closeFile(p)
			dom.on.Hardware.Reap(dom.name, pid)
			d.reap(dom, slot)
			freed = true
			continue
		}
		// It was ended just now and may still write to the page, or could not be identified.
		m := dom.attachment
		d.tasks.Go(func() {
			defer p.Close()
			if awaitExit(d.ctx, p) != nil {
				return
			}
			if d.reapLate(dom, m, slot, pid) {
				d.clearSegments(dom, m)
			}
		})
	}
	if m := dom.attachment; freed {
		d.tasks.Go(func() { d.clearSegments(dom, m) })
	}
}

// reapLate is reap for a worker without a guest that also held engines. It returns false if the page was freed with the
// domain's last guest before.
func (d *Daemon) reapLate(dom *domain, m *sched.Attachment, slot, pid int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dom.attachment != m {
		return false
	}
	dom.on.Hardware.Reap(dom.name, pid)
	d.reap(dom, slot)
	return true
}

func sameFile(a, b *os.File) bool {
	var x, y unix.Stat_t
	return withFD(a, func(fd int) error { return unix.Fstat(fd, &x) }) == nil &&
		withFD(b, func(fd int) error { return unix.Fstat(fd, &y) }) == nil &&
		x.Dev == y.Dev && x.Ino == y.Ino
}
