// Package configs turns pegasus.toml, and the drop-in files beside it, into checked values.
//
// Callers: the daemon and the commands that start one. Trust boundary: the files. Whatever they contain, the
// result is either a Config in which every value is in its range and every name refers to an existing object,
// or a list of all mistakes, each with its line and the allowed values.
//
// The package defines the structure of the file, except for the parameters of the policies, which policies
// declares. The caller passes the names of the existing policies in as Options.
package configs

import (
	"fmt"
	"io/fs"
	"slices"
	"time"

	"pegasus/policies"
)

// Path is the configuration file of the system daemon.
const Path = "/etc/pegasus/pegasus.toml"

// maxFile bounds the size of the files that Load reads: a configuration is text written by people.
const maxFile = 1 << 20

// Config is one checked configuration. It has at least one accelerator.
type Config struct {
	Daemon       Daemon
	API          API
	Accelerators []Accelerator
	// Template holds the values for each key that a domain doesn't set, and all values of an undeclared
	// domain. Its Name is empty.
	Template Domain
	Domains  []Domain
	// Promises are the entries of the daemon's specification, by domain; nil: there is none. The values in
	// Domains include them.
	Promises map[string]Promise
	// Warnings are mistakes that were not refused, each with its file and line.
	Warnings []string

	places places         // of the keys that the files have; nil: none
	index  map[string]int // of Domains, by name, unless they were changed after Parse
}

// Daemon is the [daemon] table: the settings of the whole host.
type Daemon struct {
	RuntimeDir        string        // absolute; empty: /run/pegasus, or the user's own without root
	ControlSocket     string        // absolute; empty: control.sock in the runtime directory
	ControlGroup      string        // members may use the control socket, beside root; empty: root alone
	LogLevel          string        // debug, info, warn, error
	LogFormat         string        // text, json
	WorkerPool        int           // worker processes kept started and idle
	SpinThreads       int           // threads of the host that may spin at once; 0: half of its cores
	SpinTime          time.Duration // how long one of them spins before it parks
	Machines          string        // absolute; under Xen: directory of the attached domUs, a file for each
	XenPrints         bool          // whether Xen may be made to print the vCPUs' credit
	Regions           string        // absolute; directory of the memory of virtual machines, a file for each; empty: there are none
	Libvirt           []string      // URIs of the libvirt connections to use
	Specification     string        // absolute; a file of promises to domains, by name; empty: none
	UndeclaredDomains bool          // whether domains without a [[domain]] may be made from the template
}

// API is the [api] table: access to the daemon's API over TCP.
type API struct {
	Listen       string // address and port; empty: the API is served on the control socket only
	Certificate  string // absolute; a file of PEM; empty: no TLS
	Key          string // absolute; the certificate's private key
	ViewToken    string // absolute; a file with the token of the role view; empty: there is none
	OperateToken string // absolute; a file with the token of the role operate; empty: there is none
	Page         bool   // the operator's page is served at /
}

// Accelerator is one [[accelerator]] table.
type Accelerator struct {
	Name          string
	Type          string        // soft, nvidia
	Device        string        // index or UUID (nvidia); empty: the first
	Library       string        // absolute; the driver (nvidia); empty: the system's
	Cores         int           // of the host, for computing (soft); 0: all of them
	Memory        Size          // device memory; 0: all of the device's (nvidia)
	Swap          Size          // additional memory that may be allocated, kept in host memory; 0: none
	Policy        string        // one of Options.Policies
	Mode          string        // production, paper
	Accounts      string        // one account for all engines (sdq), or separate ones for compute and copies (mrq)
	Tick          time.Duration // the unit of windows
	RotationCap   time.Duration // upper limit of a turn of all domains
	IdleYield     time.Duration // a window idle this long is given up; 0: never
	InFlight      time.Duration // bound of one domain's predicted work in the accelerator
	KernelTimeout time.Duration // a kernel that runs longer is ended
	RefusePTX     string        // when unknown instructions are refused (soft): load, launch
	MaxDomains    int           // domains placed here at once
	MaxCredits    int           // credits of all domains placed here; 0: unlimited
	CPUFollows    bool          // the CPU weight of the machine that has its turn here is raised

	// Params are the parameters of the policies, each with a key.
	Params  policies.Values
	Change  time.Duration // measured cost of a change of contexts; not a key
	Context Size          // measured device memory that a context occupies; not a key
}

// Domain is one [[domain]] table, or the [default_domain] template.
type Domain struct {
	Name    string
	Credits int

	// Objectives.
	SLO       int           // the least part of the accelerator that it expects, in ‰; 0: none
	SLOWait   time.Duration // longest 99th percentile of the waits at its gate; 0: no objective
	SLORate   int           // least calls per second while it has work; 0: no objective
	SLOWindow time.Duration // over which the objectives are measured

	// For policies that support them.
	Bandwidth   int           // its part of the accelerator in ‰; 0: by credits
	Group       string        // shares one turn with the others of this name; empty: has its own
	Priority    int           // within its group; the larger the more urgent
	Throughput  bool          // its requests follow each other without a new decision (prt)
	Interactive bool          // it precedes its equals, because a person waits for its results
	Period      time.Duration // interval of its jobs; 0: unknown
	Deadline    time.Duration // longest time for a job; 0: its period

	// Reservation of accelerator time.
	Reserve       string        // none, pe, ae, background
	ReserveCost   time.Duration // accelerator time (pe, ae)
	ReservePeriod time.Duration // in each of these
	ReserveName   string        // shared with the others of this name; empty: its own

	// Place and limits.
	Accelerator string // name of the only permitted one; empty: any
	Memory      Size   // device memory of all its processes; 0: up to the accelerator's
	Guarantee   Size   // device memory that others can't evict; 0: none
	HostMemory  Size   // pinned memory and arenas of all its processes
	Arena       Size   // address space for bulk data, of each process; filled as used
	Processes   int    // guest processes at once
	CPU         int    // of the host's CPUs, for all its workers, in % of one; 0: unlimited

	// Its socket.
	SocketOwner string      // user; empty: the daemon's
	SocketGroup string      // group; empty: the daemon's
	SocketMode  fs.FileMode // permission bits
}

// MaxDomains is the limit of [[domain]] tables.
const MaxDomains = 16384

// Options is the caller's part of the schema.
type Options struct {
	// Policies are the names allowed for policy; case doesn't matter in the file, and Config holds the
	// spelling given here. Empty: any name.
	Policies []string
	// Types are the types of accelerators in this build. Empty: all types.
	Types []string
	// Specification parses the text of a specification file. It returns the promises by domain, and the
	// mistakes. nil: such files are not read.
	Specification func(text string) (map[string]Promise, []error)
}

// Default returns the configuration of a host without a file: one software accelerator that uses all cores,
// and domains created on demand.
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
		KernelTimeout: time.Minute,
		RefusePTX:     "load",
		MaxDomains:    64,

		Params: policies.DefaultValues(),
	}
}

// defaultOf returns the defaults for an accelerator of a's type and mode.
func defaultOf(a *Accelerator) Accelerator {
	d := defaultAccelerator("")
	if a.Type != "soft" {
		d.Memory = 0
		d.KernelTimeout = 10 * time.Second // a kernel that does not end keeps other domains from a GPU
	}
	if a.Mode == "paper" {
		d.IdleYield = 0 // the published algorithm keeps idle windows
	}
	return d
}

func defaultDomain() Domain {
	return Domain{
		Credits:    256,
		SLOWindow:  time.Minute,
		Reserve:    "none",
		HostMemory: 16 * GiB,
		Arena:      256 * MiB,
		Processes:  64,
		SocketMode: 0o660,
	}
}

// Domain returns the effective values of the domain of that name: its own table, or the template under its
// name. It returns an error if the name is invalid, or isn't declared and the daemon doesn't accept
// undeclared domains.
func (c *Config) Domain(name string) (Domain, error) {
	if i := c.find(name); i >= 0 {
		return c.Domains[i], nil
	}
	if err := CheckName(name); err != nil {
		return Domain{}, err
	}
	if !c.Daemon.UndeclaredDomains {
		return Domain{}, undeclared{c, name}
	}
	return c.Undeclared(name), nil
}

// Declares reports whether there is a [[domain]] of that name.
func (c *Config) Declares(name string) bool { return c.find(name) >= 0 }

// find returns the index of a domain in Domains, or -1.
func (c *Config) find(name string) int {
	if len(c.index) != len(c.Domains) {
		return slices.IndexFunc(c.Domains, func(d Domain) bool { return d.Name == name })
	}
	if i, ok := c.index[name]; ok {
		return i
	}
	return -1
}

// undeclared is the error of a domain that is not declared and must be. Its text, which compares the name with all
// others, is made when it is needed.
type undeclared struct {
	config *Config
	name   string
}

func (e undeclared) Error() string {
	return fmt.Sprintf("domain %q isn't declared, and undeclared_domains is false%s", e.name, DidYouMean(e.name, e.config.domainNames()))
}

// Undeclared returns the template under a name, whether or not the daemon accepts undeclared domains.
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
