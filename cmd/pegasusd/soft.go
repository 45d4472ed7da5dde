package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel/soft"
	"pegasus/accel/soft/engine"
	"pegasus/backend/control"
	"pegasus/backend/hardware"
	"pegasus/configs"
)

// acceleratorTypes are the types that openHardware and openDevice support.
var acceleratorTypes = []string{"soft", "nvidia"}

// openHardware makes the accelerator of a configuration, or adopts the one with files that workers still use.
func openHardware(host configs.Daemon, log *slog.Logger) hardware.Maker {
	return func(c configs.Accelerator, dir string, files []*os.File) (hardware.Accelerator, error) {
		log := log.With("accelerator", c.Name)
		switch c.Type {
		case "soft":
			return openSoft(c, dir, host.SpinThreads, files, log)
		case "nvidia":
			return openNVIDIA(c, dir, host.SpinThreads, files, log)
		default:
			return nil, fmt.Errorf("type = %q: this build has no such accelerators; \"soft\" works everywhere", c.Type)
		}
	}
}

// softHardware is a software accelerator, or the part that another type has in common with it: the page that
// its workers share, and one page for each domain, in which the domain's workers queue for its engines.
type softHardware struct {
	config  configs.Accelerator
	cores   int
	dir     string // of the domains' pages; "": a page vanishes with the last process that maps it
	log     *slog.Logger
	page    *engine.Memory
	file    *os.File
	arbiter *engine.Arbiter

	mu      sync.Mutex
	domains map[string]*softAccount
}

func openSoft(c configs.Accelerator, dir string, spinners int, files []*os.File, log *slog.Logger) (hardware.Accelerator, error) {
	if c.Cores == 0 {
		c.Cores = runtime.NumCPU()
	}
	return openPage(c, dir, spinners, files, c.Cores >= runtime.NumCPU(), log)
}

// openPage makes the page, or adopts the one that workers use. allCores means that a computing worker needs
// all of the host's cores.
func openPage(c configs.Accelerator, dir string, spinners int, files []*os.File, allCores bool, log *slog.Logger) (h *softHardware, err error) {
	h = &softHardware{config: c, cores: c.Cores, dir: dir, log: log, domains: map[string]*softAccount{}}
	if len(files) > 0 {
		h.page, err = adoptPage(files[0])
	} else {
		h.page, err = engine.Create(engine.Options{Memory: uint64(c.Memory), Swap: uint64(c.Swap), AllCores: allCores, Spinners: spinners})
	}
	if err != nil {
		return nil, err
	}
	if h.file, err = fileOf(h.page.FD(), "accelerator"); err != nil {
		h.page.Close()
		return nil, err
	}
	h.arbiter = engine.NewArbiter(h.page, h.overtook)
	return h, nil
}

// fileOf returns a file with a copy of a page's descriptor.
func fileOf(fd int, name string) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("engine page: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// adoptPage maps the page that workers use, and releases the holdings of workers that died meanwhile.
func adoptPage(f *os.File) (*engine.Memory, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("engine page: %w", err)
	}
	page, err := engine.Open(fd)
	if err != nil {
		return nil, err
	}
	page.Sweep()
	return page, nil
}

func (h *softHardware) Profile() hardware.Profile {
	return hardware.Profile{
		Device:     "software, " + control.Count(h.cores, "core"),
		UUID:       soft.Describe(h.config.Name, h.cores, h.page.Size(), false).UUID.String(),
		Memory:     h.page.Size(),
		Swap:       h.page.Swap(),
		Promisable: h.page.Capacity(),
		Compute:    uint64(h.cores),
		Stops:      true,
	}
}

func (h *softHardware) MemoryUsed() uint64     { return h.page.Used() }
func (h *softHardware) MemoryReserved() uint64 { return h.page.Reserved() }

func (h *softHardware) SetCommons(domain string, bytes uint64) {
	h.page.SetCommons(engine.DomainNumber(domain), bytes)
}

func (h *softHardware) KeepCommons(domains []string) {
	var numbers []uint64
	for _, d := range domains {
		numbers = append(numbers, engine.DomainNumber(d))
	}
	h.page.KeepCommons(numbers)
}

func (h *softHardware) BusyTime() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := h.page.Retired()
	for _, a := range h.domains {
		sum += a.busyTime()
	}
	return sum
}

// path returns the path of a domain's page.
func (h *softHardware) path(domain string) string { return filepath.Join(h.dir, pageName(domain)) }

// pageName returns the name of the file of a domain's page.
func pageName(domain string) string { return "domain-" + domain }

// Account implements hardware.Accelerator.
func (h *softHardware) Account(domain string) (hardware.Account, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, err := h.find(domain)
	if a != nil {
		return a, nil
	}
	if err != nil { // of another version, or damaged
		h.log.Warn("take over the engine page of a domain: making it anew", "domain", domain, "err", err)
		os.Remove(h.path(domain))
	}
	var e *engine.Engines
	if h.dir == "" {
		e, err = engine.CreateEngines()
	} else {
		e, err = engine.CreateEnginesAt(h.path(domain))
	}
	if err != nil {
		return nil, err
	}
	return h.enter(domain, e)
}

// find returns the account of a domain that has a page, or nil. The caller holds h.mu.
func (h *softHardware) find(domain string) (*softAccount, error) {
	if a := h.domains[domain]; a != nil || h.dir == "" {
		return a, nil
	}
	fd, err := unix.Open(h.path(domain), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", h.path(domain), err)
	}
	e, err := engine.OpenEngines(fd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.path(domain), err)
	}
	a, err := h.enter(domain, e)
	if err == nil {
		e.Sweep()
	}
	return a, err
}

// enter makes the account of a page. The caller holds h.mu.
func (h *softHardware) enter(domain string, e *engine.Engines) (*softAccount, error) {
	if err := e.LockIn(h.page); err != nil {
		e.Close()
		return nil, err
	}
	a := &softAccount{Engines: e, hardware: h, domain: domain, file: e.File(), party: h.arbiter.Add(e, domain)}
	h.domains[domain] = a
	return a, nil
}

// OpenAccount implements hardware.Accelerator.
func (h *softHardware) OpenAccount(domain string) hardware.Account {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, err := h.find(domain)
	if err != nil {
		h.log.Warn("take over the engine page of a domain", "domain", domain, "err", err)
	}
	if a == nil {
		return nil
	}
	return a
}

// KeepAccounts implements hardware.Accelerator.
func (h *softHardware) KeepAccounts(domains []string) {
	if h.dir == "" {
		return
	}
	var names []string
	for _, d := range domains {
		names = append(names, pageName(d))
	}
	there, err := os.ReadDir(h.dir)
	for _, f := range there {
		if !slices.Contains(names, f.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(h.dir, f.Name())))
		}
	}
	if err != nil {
		h.log.Warn("remove the engine pages of domains that are gone", "err", err)
	}
}

// softAccount is the daemon's view of a domain's page.
type softAccount struct {
	*engine.Engines
	hardware *softHardware
	domain   string
	file     *os.File
	party    *engine.Party
}

func (a *softAccount) Total() hardware.EngineTime { return engineTime(a.Engines.Total()) }
func (a *softAccount) Charge(burst time.Duration) hardware.EngineTime {
	return engineTime(a.Engines.Charge(int64(burst)))
}

func (a *softAccount) Charged() hardware.EngineTime { return engineTime(a.Engines.Charged()) }
func (a *softAccount) Turn(compute, copies bool, kernel time.Duration) {
	a.party.SetLimit(2 * int64(kernel)) // which counts processor time
	a.hardware.arbiter.SetTurn(a.party, compute, copies)
}

// Close implements hardware.Account.
func (a *softAccount) Close() {
	h := a.hardware
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.domains, a.domain)
	h.page.Retire(a.busyTime())
	if h.dir != "" {
		if err := os.Remove(h.path(a.domain)); err != nil {
			h.log.Warn("remove the engine page of a domain", "domain", a.domain, "err", err)
		}
	}
	a.unmap()
}

func (a *softAccount) unmap() error {
	a.hardware.arbiter.Remove(a.party)
	return errors.Join(a.file.Close(), a.Engines.Close())
}

func (a *softAccount) busyTime() (sum int64) {
	for _, ns := range a.Engines.Total() {
		sum += ns
	}
	return sum
}

func engineTime(t engine.Times) hardware.EngineTime {
	return hardware.EngineTime{Compute: t[engine.Compute], CopyIn: t[engine.CopyIn], CopyOut: t[engine.CopyOut]}
}

// Files implements hardware.Accelerator.
func (h *softHardware) Files(domain string) []*os.File {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []*os.File{h.file, h.domains[domain].file}
}

// Reap implements hardware.Accelerator.
func (h *softHardware) Reap(domain string, pid int) {
	h.page.Reap(pid)
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.domains[domain]; a != nil {
		a.Engines.Reap(pid)
	}
}

// Serve implements hardware.Accelerator.
func (h *softHardware) Serve(ctx context.Context) { h.arbiter.Run(ctx) }

// engineNames are the names of the tokens in the log.
var engineNames = [engine.NumTokens]string{engine.Compute: "compute", engine.CopyIn: "copies to the device", engine.CopyOut: "copies from the device"}

// overtook logs a domain that doesn't release an engine.
func (h *softHardware) overtook(p *engine.Party, k engine.Token) {
	h.log.Warn("a domain keeps an engine after its turn: others go on, and it is charged", "domain", p.Name, "engine", engineNames[k])
}

// Mend implements hardware.Accelerator.
func (h *softHardware) Mend() (damaged []string) {
	h.page.Mend()
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, a := range h.domains {
		if a.Engines.Mend() > 0 {
			damaged = append(damaged, name)
		}
	}
	return damaged
}

// Close closes the pages. Workers continue to use them.
func (h *softHardware) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, a := range h.domains {
		errs = append(errs, a.unmap())
	}
	h.file.Close()
	return errors.Join(append(errs, h.page.Close())...)
}
