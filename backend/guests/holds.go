package guests

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"pegasus/backend/control"
	"pegasus/backend/pidfd"
)

// errEnding rejects requests while the daemon ends.
var errEnding = control.Errorf(control.CodeEnding, "the daemon is ending; try again")

// maxHolds bounds the programs that hold domains at once.
const maxHolds = 4096

// process identifies a process of this host. The start time distinguishes it from a later process with the
// same pid.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since the host's boot
}

// program is a process that holds a domain. Its settings apply as long as it lives.
type program struct {
	process
	UID    int               `json:"uid"` // of the process, when it took hold
	Set    map[string]string `json:"settings,omitempty"`
	cancel context.CancelFunc
}

// identify returns the identity of a live process and a pidfd of it, which the caller owns.
func identify(pid int) (process, *os.File, error) {
	file, err := pidfd.Open(pid)
	if err != nil {
		return process{}, nil, err
	}
	start, err := startOf(pid)
	if err == nil && pidfd.HasExited(file) { // start may belong to another process then
		err = fmt.Errorf("process %d has ended", pid)
	}
	if err != nil {
		file.Close()
		return process{}, nil, err
	}
	return process{pid, start}, file, nil
}

// startOf returns the start time of a process, in clock ticks since boot.
func startOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // the name may contain spaces and parentheses
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// Hold keeps a domain, and a private daemon, for as long as the caller's process lives, whatever it executes meanwhile.
func (r Requests) Hold(p control.Peer, q control.HoldParams) (control.HoldResult, error) {
	reg := r.reg
	id, file, err := identify(p.PID)
	if err != nil {
		return control.HoldResult{}, control.Errorf(control.CodeInvalid, "hold: %v", err)
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return r.holdDomain(p.UID, id, file, q)
}

// holdDomain takes ownership of file, also after an error. Registry.mu is held.
func (r Requests) holdDomain(uid int, id process, file *os.File, q control.HoldParams) (none control.HoldResult, err error) {
	reg := r.reg
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	switch {
	case reg.ending:
		return none, errEnding
	case reg.holders >= maxHolds:
		return none, control.Errorf(control.CodeConflict, "%d programs run already, the most there can be", maxHolds)
	}
	dom, err := reg.domain(q.Domain)
	if err != nil {
		return none, err
	}
	defer dom.endIfUnowned() // a domain that this call made, after an error
	var set map[string]string
	if q.Credits != 0 {
		set = map[string]string{"credits": strconv.Itoa(q.Credits)}
		next, err := override(reg.config, dom.settings, set)
		if err != nil {
			return none, err
		}
		dom.apply(next)
	}
	dom.addProgram(program{process: id, UID: uid, Set: set}, file)
	reg.store.saveOrWarn()
	return control.HoldResult{Domain: dom.name, Socket: dom.socket()}, nil
}

// addProgram makes a process hold a domain until the process ends, and takes ownership of its file. Registry.mu is
// held.
func (dom *domain) addProgram(held program, file *os.File) {
	reg, id := dom.reg, held.process
	reg.store.changed = true
	if i := slices.IndexFunc(dom.programs, func(p program) bool { return p.process == id }); i >= 0 {
		file.Close()
		if held.Set != nil {
			dom.programs[i].Set = held.Set
		}
		return
	}
	ctx, cancel := context.WithCancel(reg.ctx)
	held.cancel = cancel
	dom.programs = append(dom.programs, held)
	reg.holders++
	reg.tasks.Go(func() {
		defer cancel()
		defer file.Close()
		if pidfd.AwaitExit(ctx, file) == nil {
			dom.dropProgram(id)
		}
	})
}

// dropProgram drops a program that has ended, and its settings. If the domain has only guest processes left, which the
// program may have started, the domain keeps the settings.
func (dom *domain) dropProgram(id process) {
	reg := dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	i := slices.IndexFunc(dom.programs, func(p program) bool { return p.process == id })
	if i < 0 {
		return
	}
	ended := dom.programs[i]
	dom.programs = slices.Delete(dom.programs, i, i+1)
	reg.holders--
	reg.store.changed = true
	gone := dom.endIfUnowned()
	if file, err := reg.settingsOf(reg.config, dom.name); !gone && ended.Set != nil && err == nil {
		if len(dom.programs) == 0 && dom.owner() == control.OwnerGuest {
			dom.keepSettings(ended, file)
		}
		dom.apply(dom.plan(reg.config, file).settings)
	}
	reg.restIfIdle()
}

// dropPrograms ends all holds of a domain, not the programs. Registry.mu is held.
func (dom *domain) dropPrograms() {
	reg := dom.reg
	for _, p := range dom.programs {
		p.cancel()
	}
	reg.holders -= len(dom.programs)
	dom.programs = nil
}

// restIfIdle starts the timer that ends an unused private daemon, or stops it if the daemon is in use. Registry.mu is
// held.
func (reg *Registry) restIfIdle() {
	if !reg.opt.Private {
		return
	}
	if !reg.idle() {
		reg.rest.Stop()
		return
	}
	reg.rest.Reset(reg.opt.Linger)
}

func (reg *Registry) idle() bool {
	return reg.holders == 0 && len(reg.guests) == 0 && reg.arriving == 0
}

// endIfIdle ends a private daemon that is still idle.
func (reg *Registry) endIfIdle() {
	reg.mu.Lock()
	idle := reg.idle()
	if idle {
		reg.ending = true
	}
	reg.mu.Unlock()
	if idle {
		reg.log.Info("no guest and no program is left; ending")
		reg.end()
	}
}
