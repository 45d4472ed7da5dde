package backend

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"pegasus/backend/control"
)

// errEnding is when nothing is begun any more.
var errEnding = control.Errorf(control.CodeConflict, "the daemon is ending; try again")

// maxHolds bounds the programs that hold domains at once.
const maxHolds = 4096

// A process is one of this host's. The pid of another that has ended, given to a new one, is
// told apart by its start.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in the kernel's ticks since the host was started
}

// A program is a process that holds a domain, with what it asked for as long as it lives.
type program struct {
	process
	Set    map[string]string `json:"settings,omitempty"`
	cancel context.CancelFunc
}

// identify opens a process.
func identify(pid int) (process, *os.File, error) {
	pidfd, err := openProcess(pid)
	if err != nil {
		return process{}, nil, err
	}
	start, err := startOf(pid)
	if err == nil && hasExited(pidfd) { // and start is that of another
		err = fmt.Errorf("process %d has ended", pid)
	}
	if err != nil {
		pidfd.Close()
		return process{}, nil, err
	}
	return process{pid, start}, pidfd, nil
}

// startOf is when a process was started.
func startOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // the program's name may have anything in it
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// hold keeps a domain, and a private daemon, for as long as the caller's
// process lives, whatever it executes meanwhile.
func (d *Daemon) hold(p control.Peer, q control.HoldParams) (control.HoldResult, error) {
	who, pidfd, err := identify(p.PID)
	if err != nil {
		return control.HoldResult{}, control.Errorf(control.CodeInvalid, "hold: %v", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.holdDomain(who, pidfd, q)
}

// holdDomain has pidfd, which is its own, watched. d.mu is held.
func (d *Daemon) holdDomain(who process, pidfd *os.File, q control.HoldParams) (none control.HoldResult, err error) {
	defer func() {
		if err != nil {
			pidfd.Close()
		}
	}()
	switch {
	case d.ending:
		return none, errEnding
	case d.holders >= maxHolds:
		return none, control.Errorf(control.CodeConflict, "%d programs run already, the most there can be", maxHolds)
	}
	dom, err := d.domain(q.Domain)
	if err != nil {
		return none, err
	}
	defer d.retire(dom) // where it comes to nothing
	var set map[string]string
	if q.Credits != 0 {
		set = map[string]string{"credits": strconv.Itoa(q.Credits)}
		next, err := override(d.config, dom.settings, set)
		if err != nil {
			return none, err
		}
		d.apply(dom, next)
	}
	d.keep(dom, who, pidfd, set)
	d.saveOrWarn()
	return control.HoldResult{Domain: dom.name, Socket: dom.socket()}, nil
}

// keep has a program hold a domain until the process of pidfd, which is its own, ends. d.mu is held.
func (d *Daemon) keep(dom *domain, who process, pidfd *os.File, set map[string]string) {
	d.changed = true
	if i := slices.IndexFunc(dom.programs, func(p program) bool { return p.process == who }); i >= 0 {
		pidfd.Close()
		if set != nil {
			dom.programs[i].Set = set
		}
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	dom.programs = append(dom.programs, program{who, set, cancel})
	d.holders++
	d.tasks.Go(func() {
		defer cancel()
		defer pidfd.Close()
		if awaitExit(ctx, pidfd) == nil {
			d.unhold(dom, who)
		}
	})
}

// unhold forgets a program that has ended, and what it asked for. Where only guest processes are
// left, which it may have started, that stays.
func (d *Daemon) unhold(dom *domain, who process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(dom.programs, func(p program) bool { return p.process == who })
	if i < 0 {
		return
	}
	set := dom.programs[i].Set
	dom.programs = slices.Delete(dom.programs, i, i+1)
	d.holders--
	d.changed = true
	gone := d.retire(dom)
	if file, err := d.settingsOf(d.config, dom.name); !gone && set != nil && err == nil {
		if len(dom.programs) == 0 && d.owner(dom) == control.OwnerGuest {
			for k, v := range set {
				dom.set[k] = setting{Value: v, File: file.Get(k)}
			}
		}
		d.apply(dom, d.planDomain(d.config, dom, file).settings)
	}
	d.restIfIdle()
}

// dropPrograms ends the holds of a domain, though the programs live on. d.mu is held.
func (d *Daemon) dropPrograms(dom *domain) {
	for _, p := range dom.programs {
		p.cancel()
	}
	d.holders -= len(dom.programs)
	dom.programs = nil
}

// restIfIdle lets a private daemon that nobody uses end after a while. d.mu is held.
func (d *Daemon) restIfIdle() {
	if !d.opt.Private {
		return
	}
	if !d.idle() {
		d.rest.Stop()
		return
	}
	d.rest.Reset(d.opt.Linger)
}

func (d *Daemon) idle() bool { return d.holders == 0 && len(d.guests) == 0 && d.arriving == 0 }

// endIfIdle ends a private daemon, unless somebody came meanwhile.
func (d *Daemon) endIfIdle() {
	d.mu.Lock()
	idle := d.idle()
	if idle {
		d.ending = true
	}
	d.mu.Unlock()
	if idle {
		d.log.Info("nobody is left: ending")
		d.end()
	}
}
