// Package configs turns pegasus.toml, and the drop-in files beside it, into checked values.
//
// The daemon and the commands that start one call it; nothing else does. It
// trusts nobody: whatever is in the file, the answer is either a Config in which
// every value is in its range and every name refers to something, or a list of
// all that is wrong, each with its line and what would have been allowed.
//
// The package knows the shape of the file and imports nothing else of Pegasus.
// Which policies exist is the caller's knowledge, passed in as Options.
package configs

import (
	"fmt"
	"io/fs"
	"slices"
	"time"
)

// Path is where the system daemon's configuration lives.
const Path = "/etc/pegasus/pegasus.toml"

// SwitchCost is what a change of contexts is taken to cost where nobody says, nor measures it.
const SwitchCost = 250 * time.Microsecond

// maxFile bounds what Load reads: a configuration is text written by people.
const maxFile = 1 << 20

// Config is one checked configuration. It has at least one accelerator.
type Config struct {
	Daemon       Daemon
	Accelerators []Accelerator
	// Template holds what a domain gets for each key that it doesn't set, and
	// all of what an undeclared domain gets. Its Name is empty.
	Template Domain
	Domains  []Domain
	// Promises are the entries of the daemon's specification, by the domains that
	// they name; nil: there is none. Domains have them in already.
	Promises map[string]Promise
	// Warnings are what was wrong but not refused, each with its file and line.
	Warnings []string
}

// Daemon is the [daemon] table: what concerns the whole host.
type Daemon struct {
	RuntimeDir        string        // absolute; empty: /run/pegasus, or the user's own without root
	ControlSocket     string        // absolute; empty: control.sock in the runtime directory
	ControlGroup      string        // members may use the control socket, beside root; empty: root alone
	LogLevel          string        // debug, info, warn, error
	LogFormat         string        // text, json
	WorkerPool        int           // worker processes kept started and ready
	SpinThreads       int           // threads of the host that may spin at once; 0: half of its cores
	SpinTime          time.Duration // how long one of them spins before it parks
	Machines          string        // absolute; under Xen: where it stands which domUs are attached, a file for each
	XenPrints         bool          // whether Xen may be asked to print what credit vCPUs have
	Regions           string        // absolute; where the memory of virtual machines lies, a file for each; empty: there are none
	Libvirt           []string      // URIs of those that have the machines
	Specification     string        // absolute; a file of entries that promise domains something, by name; empty: none
	UndeclaredDomains bool          // whether domains without a [[domain]] may be made from the template
}

// Accelerator is one [[accelerator]] table.
type Accelerator struct {
	Name          string
	Type          string        // soft, nvidia
	Device        string        // index or UUID (nvidia); empty: the first
	Library       string        // absolute; the driver (nvidia); empty: as the system finds it
	Cores         int           // cores of the host that compute (soft); 0: all of them
	Memory        Size          // device memory; 0: all that there is (nvidia)
	Swap          Size          // how much more may be allocated, and lies in host memory; 0: no more
	Policy        string        // who runs next; one of Options.Policies
	Mode          string        // production, paper
	Accounts      string        // one for all engines together (sdq), or compute and copies apart (mrq)
	Tick          time.Duration // the unit of windows
	RotationCap   time.Duration // no turn of all domains is longer
	IdleYield     time.Duration // a window idle this long is given up; 0: never
	InFlight      time.Duration // bound of one domain's predicted work in the accelerator
	KernelTimeout time.Duration // a kernel that runs longer is ended
	RefusePTX     string        // when unknown instructions are refused (soft): load, launch
	MaxDomains    int           // domains placed here at once
	CPUFollows    bool          // the CPU weight of the machine that has its turn here is raised

	// Of the policies that lend windows, or budgets (lag).
	DebtAF     int           // in paper mode: one part in so many of an overrun is repaid in each window; 0: none
	ByCredits  bool          // slaf, augc, cosched: accelerator credits count although CPU weights are known
	Scan       time.Duration // slaf: how often objectives are looked at
	Boost      int           // augc: how many times CPU credit counts
	MaxSkip    int           // cosched: ticks for which a domain with work is passed over
	Wait       time.Duration // lag: longest pause for which the accelerator is kept
	Ahead      time.Duration // lag: how far one may get ahead of another; 0: by what a switch costs
	SwitchCost time.Duration // lag: of a change of contexts, until it has been measured
	Change     time.Duration // what one costs, as was measured; no key sets it
	Context    Size          // what one takes for itself of the device memory, as was measured; no key sets it

	// Of the policies that lend requests.
	Order            string        // of the domains of a group: policy (its own), fifo, fp, edf
	ByArrival        bool          // fifo: requests as they come, not domains in turn
	Launches         int           // credit, band: requests of a lease
	Period           time.Duration // credit, band: credit is refilled so often
	Window           time.Duration // band: over which it is measured what was used
	Mean             time.Duration // band: the time of a running mean in its place; 0: none
	HoldBack         time.Duration // band: how long a greedy group is held back
	Quantum          time.Duration // drr: what 256 credits are worth in a round
	Jiffy            time.Duration // drr: a clock that ticks so often measures; 0: the ends of requests do
	RunRequests      int           // ht: requests of a run
	RunTime          time.Duration // ht: and how long one is meant to take
	BackgroundCost   time.Duration // of all domains in the background,
	BackgroundPeriod time.Duration // in each of these
	ReserveLimit     int           // of all reserves together, in %
	History          int           // ae: keys whose cost is remembered of each domain; 0: as workers predict
}

// Domain is one [[domain]] table, or the [default_domain] template.
type Domain struct {
	Name          string
	Credits       int
	SLO           int           // least part of the accelerator that it expects, in ‰; 0: none
	Bandwidth     int           // its part of the accelerator in ‰, for policies that count so; 0: by credits
	Group         string        // shares one turn with the others of this name; empty: has its own
	Priority      int           // within its group; the larger the more urgent
	Throughput    bool          // its requests follow each other without asking (prt)
	Interactive   bool          // a person waits for it: it goes before its equals
	Period        time.Duration // how often it has a job; 0: unknown
	Deadline      time.Duration // how long a job may take; 0: its period
	Reserve       string        // what limits it: none, pe, ae, background
	ReserveCost   time.Duration // so much accelerator time (pe, ae)
	ReservePeriod time.Duration // in each of these
	ReserveName   string        // shared with the others of this name; empty: its own
	Accelerator   string        // name of the only one to be placed on; empty: any
	Memory        Size          // device memory of all its processes; 0: up to the accelerator's
	Guarantee     Size          // device memory that others can't take from it; 0: none
	HostMemory    Size          // pinned memory and arenas of all its processes
	Arena         Size          // address space for bulk data, of each process; filled as used
	Processes     int           // guest processes at once
	CPU           int           // of the host's CPUs, for all its workers, in % of one; 0: as much as there is
	SocketOwner   string        // user of the domain's socket; empty: the daemon's
	SocketGroup   string        // group of the domain's socket; empty: the daemon's
	SocketMode    fs.FileMode   // permission bits of the domain's socket
}

// MaxDomains is how many [[domain]] tables there may be.
const MaxDomains = 16384

// Options is what the caller knows and this package doesn't.
type Options struct {
	// Policies are the names allowed for policy; case doesn't matter in the
	// file, and Config holds the spelling found here. Empty: any name.
	Policies []string
	// Types are the types of accelerators that this build has. Empty: all that
	// there are.
	Types []string
	// Specification reads the text of a specification file: what it promises, by
	// domain, and what is wrong with it. nil: such files are not read.
	Specification func(text string) (map[string]Promise, []error)
}

// Default returns the configuration of a host without a file: one software
// accelerator that uses all cores, and domains made when they are asked for.
func Default() *Config {
	return &Config{
		Daemon:       defaultDaemon(),
		Accelerators: []Accelerator{defaultAccelerator("soft0")},
		Template:     defaultDomain(),
	}
}

func defaultDaemon() Daemon {
	return Daemon{
		LogLevel:          "info",
		LogFormat:         "text",
		WorkerPool:        2,
		SpinTime:          50 * time.Microsecond,
		Machines:          "/var/lib/pegasus/machines",
		Libvirt:           []string{"qemu:///system"},
		UndeclaredDomains: true,
	}
}

func defaultAccelerator(name string) Accelerator {
	return Accelerator{
		Name:          name,
		Type:          "soft",
		Memory:        2 * GiB,
		Policy:        "accc",
		Mode:          "production",
		Accounts:      "sdq",
		Tick:          30 * time.Millisecond,
		RotationCap:   time.Second,
		IdleYield:     2 * time.Millisecond,
		InFlight:      4 * time.Millisecond,
		KernelTimeout: 10 * time.Second,
		RefusePTX:     "load",
		MaxDomains:    64,

		Scan:       time.Second,
		Boost:      4,
		MaxSkip:    4,
		Wait:       2 * time.Millisecond,
		SwitchCost: SwitchCost,

		Order:            "policy",
		Launches:         32,
		Period:           30 * time.Millisecond,
		Window:           time.Second,
		HoldBack:         500 * time.Microsecond,
		Quantum:          500 * time.Microsecond,
		RunRequests:      8,
		RunTime:          10 * time.Millisecond,
		BackgroundCost:   2500 * time.Microsecond,
		BackgroundPeriod: 25 * time.Millisecond,
		ReserveLimit:     90,
		History:          100,
	}
}

func defaultDomain() Domain {
	return Domain{
		Credits:    256,
		Reserve:    "none",
		HostMemory: 16 * GiB,
		Arena:      256 * MiB,
		Processes:  64,
		SocketMode: 0o660,
	}
}

// Domain returns what holds for the domain of that name: its own table, or the
// template under its name. It fails if the name can't be one, or isn't declared
// and the daemon doesn't take undeclared domains.
func (c *Config) Domain(name string) (Domain, error) {
	i := slices.IndexFunc(c.Domains, func(d Domain) bool { return d.Name == name })
	if i >= 0 {
		return c.Domains[i], nil
	}
	if err := CheckName(name); err != nil {
		return Domain{}, err
	}
	if !c.Daemon.UndeclaredDomains {
		return Domain{}, fmt.Errorf("domain %q isn't declared, and undeclared_domains is false%s",
			name, didYouMean(name, c.domainNames()))
	}
	return c.Undeclared(name), nil
}

// Undeclared returns the template under a name, whether or not the daemon takes undeclared domains.
func (c *Config) Undeclared(name string) Domain {
	d := c.promised(name)
	d.Name = name
	return d
}

func (c *Config) domainNames() []string {
	var names []string
	for _, d := range c.Domains {
		names = append(names, d.Name)
	}
	return names
}

func (c *Config) acceleratorNames() []string {
	var names []string
	for _, a := range c.Accelerators {
		names = append(names, a.Name)
	}
	return names
}
