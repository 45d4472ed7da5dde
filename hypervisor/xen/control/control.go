// Package control reads and changes, from Dom0, the state and scheduling parameters of domains and their vCPUs in the
// hypervisor Xen.
//
// The calls are Xen's sysctl and domctl, with the layout of Xen's public headers. They are versioned: every release
// of Xen has its own numbers and rejects others'. So New detects the version; an unknown release is rejected, since
// its layout may differ.
//
// Callers: hypervisor/xen/cpus, domus and trace in the daemon, and the pegasus command, as root of Dom0.
//
// Trust boundary: the hypervisor is trusted.
package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Caller calls the hypervisor, such as privcmd.Hypercalls. Memory is memory accessible to it, at Address: a page for
// the argument, then room for the data that the argument points to.
type Caller interface {
	Call(op uint64, args ...uint64) (int64, error)
	Memory() []byte
	Address() uint64
}

// Xen is a connection to the hypervisor. Not safe for concurrent use.
type Xen struct {
	c      Caller
	layout layout
	Major  int
	Minor  int
}

// layout has the differences between releases.
type layout struct {
	sysctl, domctl  uint32 // interface versions
	domainInfoBytes int
}

// layouts are those of the releases of which the public headers were compared: 4.11 to 4.22.
var layouts = []layout{
	{0x16, 0x18, 112}, // 4.22
	{0x16, 0x17, 112}, // 4.21
	{0x15, 0x17, 112}, // 4.19, 4.20
	{0x15, 0x16, 112}, // 4.18
	{0x15, 0x15, 112}, // 4.17
	{0x14, 0x14, 112}, // 4.16
	{0x13, 0x13, 104}, // 4.15
	{0x13, 0x12, 104}, // 4.14
	{0x12, 0x12, 104}, // 4.13
	{0x12, 0x11, 104}, // 4.12
	{0x11, 0x10, 104}, // 4.11
}

const (
	opVersion = 17
	opSysctl  = 35
	opDomctl  = 36
)

// New returns a Xen for the hypervisor's release.
func New(c Caller) (*Xen, error) {
	v, err := c.Call(opVersion, 0)
	if err != nil {
		return nil, fmt.Errorf("query Xen's version: %w", err)
	}
	x := &Xen{c: c, Major: int(v >> 16), Minor: int(v & 0xffff)}
	for _, x.layout = range layouts {
		_, err := x.Scheduler()
		if err == nil {
			_, err = x.VCPU(0, 0)
		}
		if !errors.Is(err, syscall.EACCES) { // the error for another interface version
			return x, err
		}
	}
	return nil, fmt.Errorf("Xen %d.%d has another interface than releases 4.11 to 4.22: this program is too old or too new for it", x.Major, x.Minor)
}

// argument returns the argument's page, cleared.
func (x *Xen) argument() []byte {
	page := x.c.Memory()[:4096]
	clear(page)
	return page
}

// behind returns the memory behind the argument, for further results of a call, and its address.
func (x *Xen) behind() (mem []byte, at uint64) { return x.c.Memory()[4096:], x.c.Address() + 4096 }

var le = binary.LittleEndian

func (x *Xen) sysctl(cmd uint32, arg []byte) error {
	le.PutUint32(arg, cmd)
	le.PutUint32(arg[4:], x.layout.sysctl)
	_, err := x.c.Call(opSysctl, x.c.Address())
	return err
}

func (x *Xen) domctl(cmd uint32, domain uint16, arg []byte) error {
	le.PutUint32(arg, cmd)
	le.PutUint32(arg[4:], x.layout.domctl)
	le.PutUint16(arg[8:], domain)
	_, err := x.c.Call(opDomctl, x.c.Address())
	return err
}

// Offsets of the command's part in the arguments of sysctl and domctl.
const (
	sysctlBody = 8
	domctlBody = 16
)

// A Scheduler is one of Xen's schedulers.
type Scheduler uint32

// The schedulers with supported parameters.
const (
	Credit  Scheduler = 5
	Credit2 Scheduler = 6
)

// schedulers are the names of all schedulers of Xen.
var schedulers = map[Scheduler]string{Credit: "credit", Credit2: "credit2", 7: "arinc653", 8: "rtds", 9: "null"}

func (s Scheduler) String() string {
	if name, ok := schedulers[s]; ok {
		return name
	}
	return fmt.Sprintf("scheduler %d", uint32(s))
}

// Known reports whether its parameters are supported: others have another layout, or none.
func (s Scheduler) Known() bool { return s == Credit || s == Credit2 }

// Scheduler returns the hypervisor's default scheduler.
func (x *Xen) Scheduler() (Scheduler, error) {
	const sysctlSchedID = 4
	arg := x.argument()
	if err := x.sysctl(sysctlSchedID, arg); err != nil {
		return 0, fmt.Errorf("query Xen's scheduler: %w", err)
	}
	return Scheduler(le.Uint32(arg[sysctlBody:])), nil
}

// Domain is the hypervisor's state of a domain.
type Domain struct {
	ID      uint16
	Flags   uint32
	CPUTime time.Duration // of all its vCPUs, total
	VCPUs   int           // online
	MaxVCPU int           // the highest vCPU's number; -1: it has none, as during its creation
	Pool    uint32
}

// Flags of a domain.
const (
	DomainDying    = 1 << 0
	DomainShutdown = 1 << 2
	DomainPaused   = 1 << 3
	DomainBlocked  = 1 << 4
	DomainRunning  = 1 << 5
)

// Domains returns all domains, by number.
func (x *Xen) Domains() (all []Domain, err error) {
	const sysctlGetDomainInfoList = 6
	mem, at := x.behind()
	size := x.layout.domainInfoBytes
	most := len(mem) / size
	for first := uint16(0); ; {
		arg := x.argument()
		body := arg[sysctlBody:]
		le.PutUint16(body, first)
		le.PutUint32(body[4:], uint32(most))
		le.PutUint64(body[8:], at)
		if err := x.sysctl(sysctlGetDomainInfoList, arg); err != nil {
			return nil, fmt.Errorf("query Xen's domains: %w", err)
		}
		n := int(le.Uint32(body[16:]))
		if n > most {
			return nil, fmt.Errorf("Xen reports %d domains written to a buffer for %d", n, most)
		}
		for i := range n {
			all = append(all, parseDomain(mem[i*size:]))
		}
		if n < most {
			return all, nil
		}
		first = all[len(all)-1].ID + 1
	}
}

func parseDomain(b []byte) Domain {
	return Domain{
		ID: le.Uint16(b), Flags: le.Uint32(b[4:]), CPUTime: time.Duration(le.Uint64(b[56:])),
		VCPUs: int(le.Uint32(b[64:])), MaxVCPU: int(int32(le.Uint32(b[68:]))), Pool: le.Uint32(b[92:]),
	}
}

// VCPU is a vCPU's current state. CPU is where it runs, or last ran or waits.
type VCPU struct {
	Online  bool
	Blocked bool
	Running bool
	CPUTime time.Duration // total running time
	CPU     int
}

// VCPU returns the state of a domain's vCPU. The states of several are not of one instant.
func (x *Xen) VCPU(domain uint16, number uint32) (VCPU, error) {
	const domctlGetVCPUInfo = 14
	arg := x.argument()
	body := arg[domctlBody:]
	le.PutUint32(body, number)
	if err := x.domctl(domctlGetVCPUInfo, domain, arg); err != nil {
		return VCPU{}, fmt.Errorf("query vCPU %d of domain %d: %w", number, domain, err)
	}
	return VCPU{
		Online: body[4] != 0, Blocked: body[5] != 0, Running: body[6] != 0,
		CPUTime: time.Duration(le.Uint64(body[8:])), CPU: int(le.Uint32(body[16:])),
	}, nil
}

// Params are a domain's scheduling parameters: its weight relative to others', and its cap in percent of one CPU; 0:
// none.
type Params struct {
	Weight uint16
	Cap    uint16
}

// The limits of Xen's tools.
const (
	MaxWeight = 65535
	capBusy   = 100 // percent of a CPU for each vCPU
)

const (
	domctlScheduler  = 16
	schedulerPut     = 0
	schedulerGet     = 1
	schedulerNoCap   = 0xffff // keeps the cap
	schedulerNothing = 0      // as a weight: keeps it
)

// Params returns a domain's parameters under scheduler s.
func (x *Xen) Params(s Scheduler, domain uint16) (Params, error) {
	arg := x.argument()
	body := arg[domctlBody:]
	le.PutUint32(body, uint32(s))
	le.PutUint32(body[4:], schedulerGet)
	if err := x.domctl(domctlScheduler, domain, arg); err != nil {
		return Params{}, fmt.Errorf("query the weight of domain %d under %v: %w", domain, s, err)
	}
	return Params{Weight: le.Uint16(body[8:]), Cap: le.Uint16(body[10:])}, nil
}

// SetWeight sets a domain's weight, and keeps its cap. Xen itself accepts any value.
func (x *Xen) SetWeight(s Scheduler, domain, weight uint16) error {
	if weight == 0 {
		return fmt.Errorf("weight 0 of domain %d: want 1 to %d", domain, MaxWeight)
	}
	return x.put(s, domain, weight, schedulerNoCap)
}

// SetCap sets the cap of a domain with so many vCPUs, and keeps its weight.
func (x *Xen) SetCap(s Scheduler, domain, percent uint16, vcpus int) error {
	if percent == schedulerNoCap || int(percent) > capBusy*vcpus {
		return fmt.Errorf("cap %d %% of domain %d: want at most %d %%, for %d vCPUs", percent, domain, capBusy*vcpus, vcpus)
	}
	return x.put(s, domain, schedulerNothing, percent)
}

func (x *Xen) put(s Scheduler, domain, weight, percent uint16) error {
	arg := x.argument()
	body := arg[domctlBody:]
	le.PutUint32(body, uint32(s))
	le.PutUint32(body[4:], schedulerPut)
	le.PutUint16(body[8:], weight)
	le.PutUint16(body[10:], percent)
	if err := x.domctl(domctlScheduler, domain, arg); err != nil {
		return fmt.Errorf("set the weight or cap of domain %d under %v: %w", domain, s, err)
	}
	return nil
}
