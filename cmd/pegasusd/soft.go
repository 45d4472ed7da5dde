package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"pegasus/accel/soft/engine"
	"pegasus/backend"
	"pegasus/configs"
)

// acceleratorTypes are those that openHardware and openDevice know.
var acceleratorTypes = []string{"soft", "nvidia"}

// openHardware makes the accelerator of a configuration, or takes over the one
// whose files workers still use.
func openHardware(host configs.Daemon) backend.Maker {
	return func(c configs.Accelerator, files []*os.File) (backend.Hardware, error) {
		switch c.Type {
		case "soft":
			return openSoft(c, host.SpinThreads, files)
		case "nvidia":
			return openNVIDIA(c, host.SpinThreads, files)
		default:
			return nil, fmt.Errorf("type = %q: this build has no such accelerators; \"soft\" works everywhere", c.Type)
		}
	}
}

// softHardware is a software accelerator, or what another has in common with it: the page that its workers share.
type softHardware struct {
	config configs.Accelerator
	cores  int
	page   *engine.Page
	file   *os.File

	mu      sync.Mutex
	balance [engine.NumTokens][2]int64 // as it could last be read
}

func openSoft(c configs.Accelerator, spinners int, files []*os.File) (backend.Hardware, error) {
	if c.Cores == 0 {
		c.Cores = runtime.NumCPU()
	}
	return openPage(c, spinners, files, c.Cores >= runtime.NumCPU())
}

// openPage makes the page, or takes over the one that workers use. allCores says that who computes needs all of the host's.
func openPage(c configs.Accelerator, spinners int, files []*os.File, allCores bool) (h *softHardware, err error) {
	h = &softHardware{config: c, cores: c.Cores}
	if len(files) > 0 {
		h.page, err = adoptPage(files[0])
	} else {
		h.page, err = engine.Create(engine.Options{Memory: uint64(c.Memory), Swap: uint64(c.Swap), AllCores: allCores, Spinners: spinners})
	}
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(h.page.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		h.page.Close()
		return nil, fmt.Errorf("engine page: %w", err)
	}
	h.file = os.NewFile(uintptr(fd), "engine")
	return h, nil
}

// adoptPage maps the page that workers use, and frees what those held that died
// while nobody watched.
func adoptPage(f *os.File) (*engine.Page, error) {
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

func (h *softHardware) Profile() backend.Profile {
	return backend.Profile{
		Device:     fmt.Sprintf("software, %d cores", h.cores),
		Memory:     h.page.Memory(),
		Swap:       h.page.Swap(),
		Promisable: h.page.Capacity(),
		Compute:    uint64(h.cores),
	}
}

func (h *softHardware) MemoryUsed() uint64 { return h.page.MemoryUsed() }
func (h *softHardware) SetCommons(domain string, bytes uint64) {
	h.page.SetCommons(engine.DomainNumber(domain), bytes)
}

func (h *softHardware) KeepCommons(domains []string) {
	h.page.KeepCommons(numbers(domains))
}

func numbers(domains []string) (all []uint64) {
	for _, d := range domains {
		all = append(all, engine.DomainNumber(d))
	}
	return all
}

func (h *softHardware) MemoryReserved() uint64 { return h.page.MemoryReserved() }

func (h *softHardware) BusyTime() (sum int64) {
	for k := range engine.NumTokens {
		sum += h.page.BusyTime(k)
	}
	return sum
}

// Balance implements backend.Hardware.
func (h *softHardware) Balance() (held, charged int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range engine.NumTokens {
		if now, of, ok := h.page.Balance(k); ok {
			h.balance[k] = [2]int64{now, of}
		}
		held += h.balance[k][0]
		charged += h.balance[k][1]
	}
	return held, charged
}

// Account implements backend.Hardware.
func (h *softHardware) Account(domain string) (backend.Account, error) {
	a, err := h.page.OpenAccount(engine.DomainNumber(domain))
	if err != nil {
		return nil, err
	}
	return softAccount{a}, nil
}

// OpenAccount implements backend.Hardware.
func (h *softHardware) OpenAccount(domain string) backend.Account {
	if a, ok := h.page.Account(engine.DomainNumber(domain)); ok {
		return softAccount{a}
	}
	return nil
}

// KeepAccounts implements backend.Hardware.
func (h *softHardware) KeepAccounts(domains []string) { h.page.KeepAccounts(numbers(domains)) }

// softAccount is an account as the daemon has it.
type softAccount struct{ engine.Account }

func (a softAccount) Total() backend.EngineTime  { return engineTime(a.Account.Total()) }
func (a softAccount) Charge() backend.EngineTime { return engineTime(a.Account.Charge()) }

func engineTime(t engine.Times) backend.EngineTime {
	return backend.EngineTime{Compute: t[engine.Compute], CopyIn: t[engine.CopyIn], CopyOut: t[engine.CopyOut]}
}

func (h *softHardware) Files() []*os.File { return []*os.File{h.file} }
func (h *softHardware) Reap(pid int)      { h.page.Reap(pid) }
func (h *softHardware) Mend() int         { return h.page.Mend() }

func (h *softHardware) Close() error {
	h.file.Close()
	return h.page.Close()
}
