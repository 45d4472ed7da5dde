// Package control is the language between pegasusd and the pegasus command:
// one JSON value a line over a unix stream socket.
//
// The daemon serves it, the command and tests call it. The server trusts only
// what the kernel says about its peer; every line is bounded, and what isn't
// understood is answered with an error that names it.
package control

import "time"

// Version is the protocol's. A daemon answers requests of its own version only;
// fields and methods may be added without a new one.
const Version = 1

// Bounds on one line, its end included.
const (
	MaxRequest = 64 << 10
	MaxAnswer  = 64 << 20 // of all domains that there can be, with their leases
)

// The methods.
const (
	MethodStatus       = "status"
	MethodDomains      = "domains"
	MethodAccelerators = "accelerators"
	MethodPolicy       = "policy"
	MethodSet          = "set"
	MethodReload       = "reload"
	MethodEvents       = "events"
	MethodTrace        = "trace"
	MethodTimeline     = "timeline"
	MethodExplain      = "explain"
	MethodHold         = "hold"
	MethodCreate       = "create"
	MethodRenew        = "renew"
	MethodRelease      = "release"
	MethodRemove       = "remove"
	MethodShutdown     = "shutdown"
)

// Status is the daemon itself.
type Status struct {
	Version     string    `json:"version"`
	Protocol    int       `json:"protocol"`
	PID         int       `json:"pid"`
	Private     bool      `json:"private"`
	DomUs       bool      `json:"domus"` // it serves those of Xen
	RuntimeDir  string    `json:"runtime_dir"`
	Config      string    `json:"config"` // path; empty: built-in defaults
	Started     time.Time `json:"started"`
	Guests      int       `json:"guests"`
	Holders     int       `json:"holders"` // programs of `pegasus run` that still run
	ReadyPool   int       `json:"ready_workers"`
	Adopted     int       `json:"adopted"` // workers taken over from the daemon before
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

// Domain is one domain and what it has used.
type Domain struct {
	Name        string  `json:"name"`
	Accelerator string  `json:"accelerator"` // empty while it isn't placed
	State       string  `json:"state"`       // idle, waiting, running, …
	Credits     int     `json:"credits"`
	Entitled    float64 `json:"entitled"`                 // part of its accelerator, 0 to 1; 0: the policy owes it nothing, or it is on none
	Share       float64 `json:"share"`                    // part of all accelerator time used lately, 0 to 1
	CPUWeight   int     `json:"cpu_weight,omitempty"`     // of the host's CPUs; 256 if nothing is set; 0: not known, or nobody asks
	CPUCap      int     `json:"cpu_cap,omitempty"`        // of CPU time, in % of one CPU; 0: none, or not known
	VCPUs       int     `json:"vcpus,omitempty"`          // of a virtual machine
	VCPURan     int64   `json:"vcpu_ran_ns,omitempty"`    // what they ran, ever
	VCPUWaited  int64   `json:"vcpu_waited_ns,omitempty"` // and waited for a CPU of the host
	Steal       float64 `json:"steal,omitempty"`          // part of their time that they waited lately, 0 to 1
	GPU         int64   `json:"gpu_ns"`
	Compute     int64   `json:"compute_ns"`
	Copy        int64   `json:"copy_ns"`
	Calls       uint64  `json:"calls"`
	WaitP50     int64   `json:"wait_p50_ns"`
	WaitP99     int64   `json:"wait_p99_ns"`
	Memory      uint64  `json:"memory"`
	MemoryQuota uint64  `json:"memory_quota"` // 0: the accelerator's
	HostMemory  uint64  `json:"host_memory"`
	HostQuota   uint64  `json:"host_memory_quota"`
	Processes   int     `json:"processes"`
	PIDs        []int   `json:"pids"`
	Socket      string  `json:"socket"`
	Declared    bool    `json:"declared"`

	Owner    string  `json:"owner"`              // one of the owners below
	Leases   []Lease `json:"leases,omitempty"`   // of a domain that was created over this socket
	Programs []int   `json:"programs,omitempty"` // pids of the processes that hold the domain, as `pegasus run` does
	Removing bool    `json:"removing,omitempty"` // the domain admits no new process

	Spent   Spent    `json:"spent"`             // where its time went lately
	Machine *Machine `json:"machine,omitempty"` // a virtual machine that is attached

	MemoryGuarantee uint64 `json:"memory_guarantee"` // 0: none
	Swapped         uint64 `json:"swapped"`          // bytes of Memory that are not on the accelerator now
	SwapOut         uint64 `json:"swap_out_bytes"`   // bytes that ever left it for others'
	SwapIn          uint64 `json:"swap_in_bytes"`    // and that came back
	SwapOuts        uint64 `json:"swap_outs"`        // how often a piece of memory left it
	SwapIns         uint64 `json:"swap_ins"`

	WorkerCPU       int64   `json:"worker_cpu_ns"`     // that its workers ever had of the host's CPUs, on engines and else
	WorkerCPULately float64 `json:"worker_cpu_lately"` // the same of the last seconds, in CPUs
	WorkerCPULimit  int     `json:"worker_cpu_limit"`  // in % of one CPU; 0: none
}

// The owners of domains. A domain with several owners reports the first in this order.
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

// Spent is where a domain's time went, in parts of a window from 0 to 1 that add up to
// 1; no window: nothing is known.
type Spent struct {
	Window      int64   `json:"window_ns"`
	Accelerator float64 `json:"accelerator"` // its work held an engine
	Turn        float64 `json:"turn"`        // else: a request of it waited for leave
	VCPU        float64 `json:"vcpu"`        // else: its vCPUs waited for a CPU of the host, at most; see operations.md
	Idle        float64 `json:"idle"`        // it asked for nothing
}

// Machine is a virtual machine, as its hypervisor has it.
type Machine struct {
	State   string `json:"state"` // off, running, paused
	Host    string `json:"host"`  // who has it, such as libvirt's URI
	Agent   bool   `json:"agent"` // its agent has come since it was started
	PID     int    `json:"pid,omitempty"`
	Xen     int    `json:"domid,omitempty"`   // Xen's number of it
	VCPUs   []int  `json:"threads,omitempty"` // those of its vCPUs
	Credits int    `json:"credits,omitempty"` // that its definition asks for; 0: none

	AgentRelease string `json:"agent_release,omitempty"` // which build the agent says that it is
}

// Accelerator is one accelerator and who is on it.
type Accelerator struct {
	Name       string   `json:"name"`
	Type       string   `json:"type"`
	Device     string   `json:"device"`
	Policy     string   `json:"policy"`
	Mode       string   `json:"mode"`
	Tick       int64    `json:"tick_ns"`
	Memory     uint64   `json:"memory"`
	MemoryUsed uint64   `json:"memory_used"`
	Weight     int      `json:"weight"`       // of placement, per mille
	Busy       float64  `json:"busy"`         // part of the last window that its engines were held, 0 to 1
	GPU        int64    `json:"gpu_ns"`       // that its engines were held
	Charged    int64    `json:"charged_ns"`   // that was charged to domains, with those that have left
	Uncharged  int64    `json:"uncharged_ns"` // the difference, which is always 0: nothing is lost or charged twice
	Domains    []string `json:"domains"`
	MaxDomains int      `json:"max_domains"`
	Decisions  uint64   `json:"decisions"`

	MemoryAllocated uint64 `json:"memory_allocated"` // what all domains hold, some of it elsewhere if there is swap
	Swap            uint64 `json:"swap"`             // how much more than Memory that may be

	// Of the policy in force: why it last decided as it did, in one line, and what
	// its decisions cost.
	Explanation  string       `json:"explanation"`
	DecisionCost DecisionCost `json:"decision_cost"`
}

// DecisionCost is what the decisions of a policy took, to within a quarter above.
type DecisionCost struct {
	Count uint64 `json:"count"`
	P50   int64  `json:"p50_ns"`
	P99   int64  `json:"p99_ns"`
}

// PolicyParams switches the policy, the mode, or both; of one accelerator or all.
type PolicyParams struct {
	Name        string `json:"name,omitempty"`
	Mode        string `json:"mode,omitempty"`
	Accelerator string `json:"accelerator,omitempty"`
}

// SetParams changes settings of one domain, as the configuration spells them.
type SetParams struct {
	Domain   string            `json:"domain"`
	Settings map[string]string `json:"settings"`
}

// DomainParams names a domain.
type DomainParams struct {
	Domain string `json:"domain,omitempty"`
}

// TraceParams names an accelerator; empty: the only one. With Used, the trace has only
// who came and what was used: enough for shares, not for pegasus sim --replay.
type TraceParams struct {
	Accelerator string `json:"accelerator,omitempty"`
	Used        bool   `json:"used,omitempty"`
}

// Span is a time during which something went on, for a picture. One that goes on for long
// comes in pieces, each beginning where the last one of its line ended.
type Span struct {
	Line        string `json:"line"` // engine, gate or cpu
	Accelerator string `json:"accelerator,omitempty"`
	Domain      string `json:"domain,omitempty"`
	Class       string `json:"class,omitempty"`   // of an engine or gate: which
	Process     int    `json:"process,omitempty"` // of an engine: the worker that had it
	Name        string `json:"name,omitempty"`    // of an engine: the kernel, or a graph's kernels
	CPU         int    `json:"cpu"`               // of a cpu; -1: unknown
	VCPU        int    `json:"vcpu"`
	From        int64  `json:"from_ns"` // CLOCK_MONOTONIC
	To          int64  `json:"to_ns"`
	Lost        uint64 `json:"lost,omitempty"` // of an engine: this much work before it isn't told of
}

// The lines of spans.
const (
	LineEngine = "engine"
	LineGate   = "gate"
	LineCPU    = "cpu"
)

// ReloadResult says what a reload changed.
type ReloadResult struct {
	Config  string   `json:"config"`
	Changes []Change `json:"changes"`
	// Warnings are what is wrong with the file but holds nobody up.
	Warnings []string `json:"warnings,omitempty"`
}

// Change is one changed key, in words, and whether it holds now or waits for a restart.
type Change struct {
	Text    string `json:"text"`
	Applied bool   `json:"applied"`
}

// Event is something that happened, for people and tools that watch.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Domain string    `json:"domain,omitempty"`
	Text   string    `json:"text"`
	By     *Caller   `json:"by,omitempty"` // the caller of the control socket; nil: the daemon acted by itself
}

// Caller is the process at the other end of a request, as the kernel reports it.
type Caller struct {
	UID int `json:"uid"`
	PID int `json:"pid"`
}

// Explanation says why a domain does or doesn't run now.
type Explanation struct {
	Domain string   `json:"domain"`
	Lines  []string `json:"lines"`
}

// HoldParams asks for a domain to exist as long as the caller's process does.
type HoldParams struct {
	Domain  string `json:"domain"`
	Credits int    `json:"credits,omitempty"`
}

// HoldResult says where the domain's guests connect.
type HoldResult struct {
	Domain string `json:"domain"`
	Socket string `json:"socket"`
}

// CreateParams creates a domain with a lease for the holder, or adds the lease to a domain that was
// created with the same settings. A second create by the same holder renews the lease.
type CreateParams struct {
	Domain   string            `json:"domain"`
	Settings map[string]string `json:"settings,omitempty"`   // as the configuration spells them
	Holder   string            `json:"holder,omitempty"`     // empty: the caller's user, as uid-0
	Expires  int64             `json:"expires_ns,omitempty"` // from now; 0: the lease has no term
}

// LeaseParams names a lease; Expires is for renew.
type LeaseParams struct {
	Domain  string `json:"domain"`
	Holder  string `json:"holder,omitempty"`
	Expires int64  `json:"expires_ns,omitempty"`
}

// RemoveParams removes a domain.
type RemoveParams struct {
	Domain string `json:"domain"`
	Mode   string `json:"mode,omitempty"` // one of the following; empty: refuse
}

// The modes of remove. They differ for a domain that is in use.
const (
	RemoveRefuse = "refuse" // returns an error
	RemoveWait   = "wait"   // closes the domain to new processes and answers when the last process has gone
	RemoveEnd    = "end"    // like wait, and ends the workers of the processes at once
)

// ShutdownParams ends the daemon; with IfIdle only when nobody uses it.
type ShutdownParams struct {
	IfIdle bool `json:"if_idle,omitempty"`
}
