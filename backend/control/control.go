// Package control has the types of the daemon's API, and the places of its sockets.
//
// Callers: backend/api serves the API; backend/client calls it.
//
// Trust boundary: PeerOf has the kernel's credentials of a connection's peer; CheckOwner and Stranger protect a caller
// from another user's process in the daemon's place.
package control

import "time"

// Version is the API's version, and the first element of its paths. Fields and operations may be added without a new
// one.
const Version = 1

// Bounds on messages, in bytes.
const (
	MaxRequest = 64 << 10 // body of a request
	MaxAnswer  = 64 << 20 // body of an answer, or line of a stream: all domains, with their leases
)

// LinesType is the media type of streams: a JSON value in each line.
const LinesType = "application/jsonl"

// Problem is the last line of a stream that an error ended.
type Problem struct {
	Problem *Error `json:"problem"`
}

// Status describes the daemon.
type Status struct {
	Version     string    `json:"version"`
	Protocol    int       `json:"protocol"`
	PID         int       `json:"pid"`
	Private     bool      `json:"private"`
	DomUs       bool      `json:"domus"` // it serves Xen's domUs
	RuntimeDir  string    `json:"runtime_dir"`
	Config      string    `json:"config"` // path; empty: built-in defaults
	Started     time.Time `json:"started"`
	Guests      int       `json:"guests"`
	Holders     int       `json:"holders"` // programs of `pegasus run` that still run
	ReadyPool   int       `json:"ready_workers"`
	Adopted     int       `json:"adopted"` // workers taken over from the previous daemon
	Policies    []string  `json:"policies"`
	Confinement []Check   `json:"confinement"`
	ConfigError string    `json:"config_error,omitempty"` // why the last reload was refused
}

// Check is one finding about this host.
type Check struct {
	Name   string `json:"name"`
	State  string `json:"state"` // ok, warn, fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Domain is one domain with its use. The embedded groups are parts of the same JSON object.
type Domain struct {
	Name        string `json:"name"`
	Accelerator string `json:"accelerator"` // empty while the domain is not placed
	State       string `json:"state"`       // idle, waiting, running, …
	DomainShare
	DomainCPU
	DomainTime
	DomainMemory
	Processes int    `json:"processes"`
	PIDs      []int  `json:"pids"`
	Socket    string `json:"socket"`
	DomainOwners
	Spent   Spent    `json:"spent"`             // where its recent time went
	Machine *Machine `json:"machine,omitempty"` // a virtual machine that is attached
	DomainSwap
	DomainWorkers
	Settings  []Setting `json:"settings,omitempty"` // in force; only of a single domain
	Objective Objective `json:"objective"`
}

// DomainShare is the part of the accelerator to which a domain is entitled, and the part that it uses.
type DomainShare struct {
	Credits  int     `json:"credits"`
	Entitled float64 `json:"entitled"` // part of its accelerator, 0 to 1; 0: no entitlement, or on none
	Share    float64 `json:"share"`    // part of its accelerator's time that was used recently, 0 to 1
}

// DomainCPU is a domain's part of the host's CPUs: the settings, and the times of a virtual machine's vCPUs.
type DomainCPU struct {
	CPUWeight  int     `json:"cpu_weight,omitempty"`     // of the host's CPUs; 256 if none is set; 0: unknown, or not queried
	CPUCap     int     `json:"cpu_cap,omitempty"`        // of CPU time, in % of one CPU; 0: none, or unknown
	VCPUs      int     `json:"vcpus,omitempty"`          // of a virtual machine
	VCPURan    int64   `json:"vcpu_ran_ns,omitempty"`    // total run time of its vCPUs
	VCPUWaited int64   `json:"vcpu_waited_ns,omitempty"` // total time that its vCPUs waited for a CPU of the host
	Steal      float64 `json:"steal,omitempty"`          // steal time: recent part of their time that they waited, 0 to 1
}

// DomainTime is the accelerator time that a domain has used, with its calls and their waits at the gate.
type DomainTime struct {
	GPU     int64  `json:"gpu_ns"`
	Compute int64  `json:"compute_ns"`
	Copy    int64  `json:"copy_ns"`
	Calls   uint64 `json:"calls"`
	WaitP50 int64  `json:"wait_p50_ns"`
	WaitP99 int64  `json:"wait_p99_ns"`
	// Waits counts the calls by their wait, where one domain is named: the first those without a wait, the one at index n
	// those that waited less than 2^n ns and at least half of that. Zeros at its end are left out.
	Waits []uint64 `json:"waits,omitempty"`
}

// DomainMemory is a domain's use of device memory and host memory, in bytes, with the quotas.
type DomainMemory struct {
	Memory      uint64 `json:"memory"`
	MemoryQuota uint64 `json:"memory_quota"` // 0: the accelerator's
	HostMemory  uint64 `json:"host_memory"`
	HostQuota   uint64 `json:"host_memory_quota"`
}

// DomainOwners are the reasons for which a domain exists.
type DomainOwners struct {
	Declared bool    `json:"declared"`
	Owner    string  `json:"owner"`              // one of the owners below
	Leases   []Lease `json:"leases,omitempty"`   // of a domain that was created over this socket
	Programs []int   `json:"programs,omitempty"` // pids of the processes that hold the domain, as `pegasus run` does
	Removing bool    `json:"removing,omitempty"` // the domain admits no new process
}

// DomainSwap is the eviction of a domain's device memory.
type DomainSwap struct {
	MemoryGuarantee uint64 `json:"memory_guarantee"` // 0: none
	Swapped         uint64 `json:"swapped"`          // bytes of Memory that are evicted now
	SwapOut         uint64 `json:"swap_out_bytes"`   // bytes ever evicted for other domains
	SwapIn          uint64 `json:"swap_in_bytes"`    // bytes ever restored
	SwapOuts        uint64 `json:"swap_outs"`        // number of evictions
	SwapIns         uint64 `json:"swap_ins"`
}

// DomainWorkers is the CPU time of a domain's workers.
type DomainWorkers struct {
	WorkerCPU       int64   `json:"worker_cpu_ns"`     // total time of its workers on the host's CPUs, on engines and otherwise
	WorkerCPULately float64 `json:"worker_cpu_lately"` // the same over the last seconds, in CPUs
	WorkerCPULimit  int     `json:"worker_cpu_limit"`  // in % of one CPU; 0: none
}

// Owners of domains. A domain with several owners reports the first in this order.
const (
	OwnerDeclared = "declared" // the configuration
	OwnerMachine  = "machine"  // a virtual machine of that name
	OwnerHeld     = "held"     // leases of create
	OwnerGuest    = "guest"    // its own processes; the domain ends with the last of them
)

// Lease keeps a domain for a holder that is not a process of this host, such as an orchestrator's pod.
type Lease struct {
	Holder  string    `json:"holder"`
	UID     int       `json:"uid"`              // of the caller of create
	Expires time.Time `json:"expires,omitzero"` // zero: the lease has no term
}

// Spent divides a domain's time in a window into parts from 0 to 1 that add up to 1. A window of 0 means that no data
// is available.
type Spent struct {
	Window      int64   `json:"window_ns"`
	Accelerator float64 `json:"accelerator"` // its work held an engine
	Turn        float64 `json:"turn"`        // else: a request waited for admission, or behind other domains' admitted work
	VCPU        float64 `json:"vcpu"`        // else: at most this part, its vCPUs waited for a CPU of the host; see operations.md
	Idle        float64 `json:"idle"`        // it requested nothing
}

// Machine is a virtual machine, as its hypervisor reports it.
type Machine struct {
	State   string `json:"state"` // off, running, paused
	Host    string `json:"host"`  // its hypervisor, such as libvirt's URI
	Agent   bool   `json:"agent"` // its agent has connected since the machine started
	PID     int    `json:"pid,omitempty"`
	Xen     int    `json:"domid,omitempty"`   // Xen's domain ID
	VCPUs   []int  `json:"threads,omitempty"` // thread IDs of its vCPUs
	Credits int    `json:"credits,omitempty"` // requested by its definition; 0: none

	AgentRelease string `json:"agent_release,omitempty"` // build that the agent reports
}

// Accelerator is one accelerator with its domains.
type Accelerator struct {
	Name       string   `json:"name"`
	Type       string   `json:"type"`
	Device     string   `json:"device"`
	UUID       string   `json:"uuid"` // as programs see it
	Policy     string   `json:"policy"`
	Mode       string   `json:"mode"`
	Tick       int64    `json:"tick_ns"`
	Memory     uint64   `json:"memory"`
	MemoryUsed uint64   `json:"memory_used"`
	Weight     int      `json:"weight"`       // of placement, per mille
	Busy       float64  `json:"busy"`         // part of the last window in which its engines were held, 0 to 1
	GPU        int64    `json:"gpu_ns"`       // time for which its engines were held
	Charged    int64    `json:"charged_ns"`   // time charged to domains, including detached ones
	Uncharged  int64    `json:"uncharged_ns"` // the difference, which is always 0: no time is lost or charged twice
	Domains    []string `json:"domains"`
	MaxDomains int      `json:"max_domains"`
	MaxCredits int      `json:"max_credits"` // of all its domains; 0: unlimited
	Decisions  uint64   `json:"decisions"`

	MemoryAllocated uint64 `json:"memory_allocated"` // held by all domains, part of it evicted if there is swap
	Swap            uint64 `json:"swap"`             // by how much that may exceed Memory

	// Of the policy in force: the reason of its last decision, in one line, and its decisions' cost.
	Explanation  string       `json:"explanation"`
	DecisionCost DecisionCost `json:"decision_cost"`
}

// DecisionCost gives the time of a policy's decisions, to within a quarter above.
type DecisionCost struct {
	Count uint64 `json:"count"`
	P50   int64  `json:"p50_ns"`
	P99   int64  `json:"p99_ns"`
}

// Fields of parameters without a JSON name are parts of the request's path or query.

// PolicyParams switches the policy, the mode, or both, of one accelerator or of all. An empty value stays as it is.
type PolicyParams struct {
	Name        string `json:"name,omitempty"`
	Mode        string `json:"mode,omitempty"`
	Accelerator string `json:"-"`
}

// SetParams changes settings of one domain, spelled as in the configuration.
type SetParams struct {
	Domain   string            `json:"-"`
	Settings map[string]string `json:"settings"`
}

// DomainParams names a domain; empty: all.
type DomainParams struct{ Domain string }

// TraceParams names an accelerator; empty: the only one. With Used, the trace has only attachments and charges: enough
// for shares, not for pegasus sim --replay.
type TraceParams struct {
	Accelerator string
	Used        bool
}

// Span is a period of an activity, for a timeline. A long one is reported in pieces, each beginning where the last one
// of its line ended.
type Span struct {
	Line        string `json:"line"` // engine, gate or cpu
	Accelerator string `json:"accelerator,omitempty"`
	Domain      string `json:"domain,omitempty"`
	Class       string `json:"class,omitempty"`   // of an engine or gate
	Process     int    `json:"process,omitempty"` // of an engine: the worker that held it
	Name        string `json:"name,omitempty"`    // of an engine: the kernel, or a graph's kernels
	CPU         int    `json:"cpu"`               // of a cpu; -1: unknown
	VCPU        int    `json:"vcpu"`
	From        int64  `json:"from_ns"` // CLOCK_MONOTONIC
	To          int64  `json:"to_ns"`
	Lost        uint64 `json:"lost,omitempty"` // of an engine: pieces of work before it that were not reported
}

// Lines of spans.
const (
	LineEngine = "engine"
	LineGate   = "gate"
	LineCPU    = "cpu"
)

// Live is one line of the live view. The first line has all accelerators and domains; a later one has those that have
// changed since the line before.
type Live struct {
	At           int64         `json:"at"`               // Unix time, in ns
	Role         string        `json:"role,omitempty"`   // of the caller: view or operate; in the first line
	Status       *Status       `json:"status,omitempty"` // in the first line
	Accelerators []Accelerator `json:"accelerators"`
	Domains      []Domain      `json:"domains"`
	Gone         []string      `json:"gone,omitempty"` // domains that no longer exist
}

// ReloadResult lists the changes of a reload.
type ReloadResult struct {
	Config  string   `json:"config"`
	Changes []Change `json:"changes"`
	// Warnings are faults of the file that do not prevent the reload.
	Warnings []string `json:"warnings,omitempty"`
}

// Change is one changed key, in words, and whether it is in force now or waits for a restart.
type Change struct {
	Text    string `json:"text"`
	Applied bool   `json:"applied"`
}

// Event is a change in the daemon, reported to subscribed people and tools.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Domain string    `json:"domain,omitempty"`
	Text   string    `json:"text"`
	By     *Caller   `json:"by,omitempty"` // the caller of the control socket; nil: the daemon acted by itself
}

// Caller is the process at the other end of a request, as the kernel reports it, or the address of a TCP connection.
type Caller struct {
	UID    int    `json:"uid"`
	PID    int    `json:"pid"`
	Remote string `json:"remote,omitempty"`
}

// Explanation gives the reason why a domain runs or does not run now.
type Explanation struct {
	Domain string   `json:"domain"`
	Lines  []string `json:"lines"`
}

// HoldParams requests that a domain exist as long as the caller's process does. Credits of 0 leave the domain's as they
// are.
type HoldParams struct {
	Domain  string `json:"-"`
	Credits int    `json:"credits,omitempty"`
}

// HoldResult gives the socket to which the domain's guests connect.
type HoldResult struct {
	Domain string `json:"domain"`
	Socket string `json:"socket"`
}

// CreateParams creates a domain with a lease for the holder, or adds the lease to a domain that was
// created with the same settings. A second create by the same holder renews the lease.
type CreateParams struct {
	Domain   string            `json:"domain"`
	Settings map[string]string `json:"settings,omitempty"`   // spelled as in the configuration
	Holder   string            `json:"holder,omitempty"`     // empty: the caller's user, as uid-0
	Expires  int64             `json:"expires_ns,omitempty"` // from now; 0: the lease has no term
}

// LeaseParams names a lease; Expires is for renew.
type LeaseParams struct {
	Domain  string `json:"-"`
	Holder  string `json:"-"`                    // empty: the caller's user, as uid-0
	Expires int64  `json:"expires_ns,omitempty"` // from now; 0: the lease has no term
}

// RemoveParams removes a domain.
type RemoveParams struct {
	Domain string
	Mode   string // one of the following; empty: refuse
}

// The modes of remove. They differ for a domain that is in use.
const (
	RemoveRefuse = "refuse" // returns an error
	RemoveWait   = "wait"   // closes the domain to new processes and answers when the last process has gone
	RemoveEnd    = "end"    // like wait, and ends the workers of the processes at once
)

// ShutdownParams ends the daemon; with IfIdle only when it is unused.
type ShutdownParams struct{ IfIdle bool }
