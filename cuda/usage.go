package cuda

import "encoding/binary"

// DomainUsage is a domain's use of an accelerator. OpDomainUsage writes it into the arena:
//
//	u32 version, processCount; u64 memoryUsed, memoryQuota; i64 now, busy
//	per process: u32 pid, 0; u64 memory; i64 busy
type DomainUsage struct {
	MemoryUsed, MemoryQuota uint64
	Now, Busy               int64 // ns: a clock, and the total computing time of its live processes
	Processes               []ProcessUsage
}

// ProcessUsage is a process of the domain.
type ProcessUsage struct {
	PID    uint32
	Memory uint64
	Busy   int64
}

const (
	usageVersion = 1
	usageHeader  = 40
	usageRecord  = 24
)

// Append encodes u after b, with as many processes as fit into room bytes.
func (u *DomainUsage) Append(b []byte, room int) []byte {
	processes := u.Processes[:max(0, min(len(u.Processes), (room-usageHeader)/usageRecord))]
	le := binary.LittleEndian
	b = le.AppendUint32(b, usageVersion)
	b = le.AppendUint32(b, uint32(len(processes)))
	b = le.AppendUint64(b, u.MemoryUsed)
	b = le.AppendUint64(b, u.MemoryQuota)
	b = le.AppendUint64(b, uint64(u.Now))
	b = le.AppendUint64(b, uint64(u.Busy))
	for _, p := range processes {
		b = le.AppendUint32(b, p.PID)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint64(b, p.Memory)
		b = le.AppendUint64(b, uint64(p.Busy))
	}
	return b
}

// Decode decodes u from b, which may have any content, and reports whether it is one.
func (u *DomainUsage) Decode(b []byte) bool {
	le := binary.LittleEndian
	if len(b) < usageHeader || le.Uint32(b) != usageVersion {
		return false
	}
	n, rest := uint64(le.Uint32(b[4:])), b[usageHeader:]
	if uint64(len(rest)) != n*usageRecord {
		return false
	}
	*u = DomainUsage{
		MemoryUsed: le.Uint64(b[8:]), MemoryQuota: le.Uint64(b[16:]),
		Now: int64(le.Uint64(b[24:])), Busy: int64(le.Uint64(b[32:])),
	}
	for ; len(rest) > 0; rest = rest[usageRecord:] {
		if le.Uint32(rest[4:]) != 0 {
			return false
		}
		u.Processes = append(u.Processes, ProcessUsage{le.Uint32(rest), le.Uint64(rest[8:]), int64(le.Uint64(rest[16:]))})
	}
	return true
}
