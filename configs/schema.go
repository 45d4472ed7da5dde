package configs

import (
	"time"

	"pegasus/policies"
)

// field is one key of a table, bound to its field of a Config. The three functions below are the whole
// schema: reading, printing and comparing configurations all walk these lists.
type field struct {
	key   string
	value value
	when  applies
}

// applies is the way in which a change takes effect: in a running daemon, or at the next start.
type applies bool

const (
	hot     applies = true
	restart applies = false
)

// mostPriority is the priority of the most urgent domain and, negative, of the least urgent.
const mostPriority = 1_000_000

// maxLibvirts is the limit of libvirt connections.
const maxLibvirts = 16

// maxSocketPath is the kernel's limit for a socket's path, in bytes.
const maxSocketPath = 107

var (
	logLevels        = []string{"debug", "info", "warn", "error"}
	logFormats       = []string{"text", "json"}
	acceleratorTypes = []string{"soft", "nvidia"}
	modes            = []string{"production", "paper"}
	accounts         = []string{"sdq", "mrq"}
	refusals         = []string{"load", "launch"}
	reserves         = []string{"none", "pe", "ae", "background"}
)

func (d *Daemon) fields() []field {
	return []field{
		{"runtime_dir", path{&d.RuntimeDir, maxSocketPath - len("/workers/9999999999.sock")}, restart},
		{"control_socket", path{&d.ControlSocket, maxSocketPath}, restart},
		{"control_group", account{&d.ControlGroup, "group", findGroup}, restart},
		{"log_level", choice{&d.LogLevel, logLevels}, hot},
		{"log_format", choice{&d.LogFormat, logFormats}, restart},
		{"worker_pool", whole{&d.WorkerPool, 0, 256, "none is kept ready"}, hot},
		{"spin_threads", whole{&d.SpinThreads, 0, 4096, "half of the host's cores"}, restart},
		{"spin_time", span{&d.SpinTime, time.Microsecond, 10 * time.Millisecond, "never spin"}, restart},
		{"regions", path{&d.Regions, 4000}, restart},
		{"machines", path{&d.Machines, 4000}, restart},
		{"xen_prints", boolean{&d.XenPrints}, restart},
		{"libvirt", list{&d.Libvirt, maxLibvirts, "of libvirt, such as \"qemu:///system\""}, restart},
		{"specification", path{&d.Specification, 4095}, hot},
		{"undeclared_domains", boolean{&d.UndeclaredDomains}, hot},
	}
}

func (a *API) fields() []field {
	return []field{
		{"listen", address{&a.Listen}, restart},
		{"certificate", path{&a.Certificate, 4095}, restart},
		{"key", path{&a.Key, 4095}, restart},
		{"view_token", path{&a.ViewToken, 4095}, restart},
		{"operate_token", path{&a.OperateToken, 4095}, restart},
		{"page", boolean{&a.Page}, restart},
	}
}

func (a *Accelerator) fields(opt Options) []field {
	fields := []field{
		{"name", name{&a.Name}, restart},
		{"type", choice{&a.Type, acceleratorTypes}, restart},
		{"device", text{&a.Device, "the index or UUID of a device"}, restart},
		{"library", path{&a.Library, 4000}, restart},
		{"cores", whole{&a.Cores, 0, 4096, "all of the host's"}, restart},
		{"memory", bytes{&a.Memory, 16 * MiB, 4 * TiB, 1, "all that the device has, if that is NVIDIA's"}, restart},
		{"swap", bytes{&a.Swap, MiB, 4 * TiB, 1, "no more is allocated than there is"}, restart},
		{"policy", choice{&a.Policy, opt.Policies}, hot},
		{"mode", choice{&a.Mode, modes}, hot},
		{"accounts", choice{&a.Accounts, accounts}, hot},
		{"tick", span{&a.Tick, time.Millisecond, time.Second, ""}, hot},
		{"rotation_cap", span{&a.RotationCap, 100 * time.Millisecond, 10 * time.Second, ""}, hot},
		{"idle_yield", span{&a.IdleYield, 100 * time.Microsecond, 30 * time.Millisecond, "idle windows are kept"}, hot},
		{"in_flight", span{&a.InFlight, 10 * time.Microsecond, time.Second, ""}, hot},
		{"kernel_timeout", span{&a.KernelTimeout, 10 * time.Millisecond, 24 * time.Hour, ""}, hot},
		{"refuse_ptx", choice{&a.RefusePTX, refusals}, hot},
		{"max_domains", whole{&a.MaxDomains, 1, 65536, ""}, hot},
		{"max_credits", whole{&a.MaxCredits, 0, 1_000_000, "unlimited"}, hot},
		{"cpu_follows_gpu", boolean{&a.CPUFollows}, hot},
	}
	for _, p := range policies.Params() {
		fields = append(fields, field{p.Key, parameter{p, &a.Params}, hot})
	}
	return fields
}

func (d *Domain) fields() []field {
	return []field{
		{"name", name{&d.Name}, restart},
		{"credits", whole{&d.Credits, 1, 65535, ""}, hot},
		{"slo", whole{&d.SLO, 0, 1000, "none"}, hot},
		{"slo_wait_p99", span{&d.SLOWait, 10 * time.Microsecond, time.Minute, "none"}, hot},
		{"slo_rate", whole{&d.SLORate, 0, 1_000_000_000, "none"}, hot},
		{"slo_window", span{&d.SLOWindow, 10 * time.Second, 10 * time.Minute, ""}, hot},
		{"bandwidth", whole{&d.Bandwidth, 0, 1000, "by credits"}, hot},
		{"group", text{&d.Group, "the name of a group of domains"}, hot},
		{"priority", whole{&d.Priority, -mostPriority, mostPriority, ""}, hot},
		{"throughput", boolean{&d.Throughput}, hot},
		{"interactive", boolean{&d.Interactive}, hot},
		{"period", span{&d.Period, time.Millisecond, time.Minute, "unknown"}, hot},
		{"deadline", span{&d.Deadline, 100 * time.Microsecond, time.Minute, "its period"}, hot},
		{"reserve", choice{&d.Reserve, reserves}, hot},
		{"reserve_cost", span{&d.ReserveCost, time.Microsecond, 10 * time.Second, "no reserve"}, hot},
		{"reserve_period", span{&d.ReservePeriod, time.Millisecond, 10 * time.Second, "no reserve"}, hot},
		{"reserve_name", text{&d.ReserveName, "the name of a reserve"}, hot},
		{"accelerator", text{&d.Accelerator, "the name of an accelerator"}, hot},
		{"memory", bytes{&d.Memory, MiB, 4 * TiB, 1, "as much as the accelerator has"}, hot},
		{"memory_guarantee", bytes{&d.Guarantee, MiB, 4 * TiB, 1, "none"}, hot},
		{"host_memory", bytes{&d.HostMemory, MiB, 4 * TiB, 1, ""}, hot},
		{"arena", bytes{&d.Arena, MiB, 16 * GiB, 4 * KiB, ""}, hot},
		{"processes", whole{&d.Processes, 1, 65536, ""}, hot},
		{"cpu", percent{&d.CPU, 10, 100 * 4096, "as much as there is"}, hot},
		{"socket_owner", account{&d.SocketOwner, "user", findUser}, hot},
		{"socket_group", account{&d.SocketGroup, "group", findGroup}, hot},
		{"socket_mode", permissions{&d.SocketMode}, hot},
	}
}

// templateFields returns the fields of a domain without its name.
func (d *Domain) templateFields() []field { return d.fields()[1:] }
