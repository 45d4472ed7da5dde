package trace

import "encoding/binary"

// Record is an event that a CPU noted.
type Record struct {
	CPU   int
	Event uint32 // its number; see the constants
	At    uint64 // the CPU's time-stamp counter
	N     int    // how many words there are
	Words [7]uint32
}

// Events. A number's upper bits are its class, so that whole classes can be chosen.
const (
	AllSchedule = 0x0002f000 // the class of all that are looked at here, for Buffers

	Lost      = 0x0001f001 // {number, domain and vCPU, first lost one's time in two words}
	wrap      = 0x0001f002 // fills the end of a buffer
	cpuChange = 0x0001f003 // {CPU, bytes}, in files: whose records follow

	Running   = 0x00021001 // {vCPU | domain<<16}; the old state is in bits 8 and 9, the new one in 4 and 5
	Continues = 0x00021002 // {vCPU | domain<<16}

	Wake       = 0x00028004 // {domain, vCPU}
	Block      = 0x00028006
	SwitchPrev = 0x0002800e // {domain, vCPU, ns that it ran}
	SwitchNext = 0x0002800f // {domain, vCPU, ns that it waited, ns that it may run}
	SwitchCont = 0x00028011 // {domain, vCPU, ns that it ran, ns that it may run}

	AccountStart = 0x00022002 // Credit: {domain, vCPU, how many of the domain's}: it earns credit
	AccountStop  = 0x00022003
	Stolen       = 0x00022004 // Credit: {from CPU, domain, vCPU}
	PickedCPU    = 0x00022005 // Credit: {domain, vCPU, CPU}
	BoostStart   = 0x00022007 // Credit: {domain, vCPU}
	BoostEnd     = 0x00022008

	CreditBurn  = 0x00022203 // Credit2: {vCPU | domain<<16, credit left, budget left, ns that it ran}
	CreditReset = 0x00022207 // Credit2: {vCPU | domain<<16, credit before, credit now}
	QueueWeight = 0x0002220e // Credit2: {queue | largest weight<<16}
)

const (
	runstateBits = 0x330 // where old and new state are in the number of Running

	hasTime      = 1 << 31
	wordsShift   = 28
	eventBits    = 1<<wordsShift - 1
	unlimited    = 1<<32 - 1 // of a time that an idle CPU may run
	headerBytes  = 4
	timeBytes    = 8
	maxWordCount = 7
)

var le = binary.LittleEndian

// Decode tells of the records in a CPU's bytes, which begin with one, and returns how many bytes
// those were that were whole. A record without a time has that of the one before, or the
// given one.
func Decode(cpu int, at uint64, b []byte, tell func(*Record)) (used int) {
	var r Record
	for len(b)-used >= headerBytes {
		header := le.Uint32(b[used:])
		r = Record{CPU: cpu, Event: header & eventBits, At: at, N: int(header >> wordsShift & maxWordCount)}
		next := used + headerBytes
		if header&hasTime != 0 {
			if len(b)-next < timeBytes {
				break
			}
			r.At = le.Uint64(b[next:])
			next += timeBytes
		}
		if len(b)-next < 4*r.N {
			break
		}
		for i := range r.N {
			r.Words[i] = le.Uint32(b[next+4*i:])
		}
		used = next + 4*r.N
		if r.Event == wrap { // whose time is none, if it has one
			continue
		}
		at = r.At
		tell(&r)
	}
	return used
}

// decode is Decode, but that lost records are told of twice: as of the time when the first one was, from
// which on nothing is known of that CPU, and when it had room again and noted that.
func decode(cpu int, at uint64, b []byte, tell func(*Record)) {
	Decode(cpu, at, b, func(r *Record) {
		if since := uint64(r.Words[2]) | uint64(r.Words[3])<<32; r.Event == Lost && r.N >= 4 && at < since && since < r.At {
			first := *r
			first.At = since
			tell(&first)
		}
		at = r.At
		tell(r)
	})
}

// VCPU names one. Those of idle CPUs belong to domain Idle.
type VCPU struct{ Domain, Number uint16 }

// Idle is the domain of the vCPUs that run where nothing else does.
const Idle = 0x7fff

// A Runstate is what a vCPU does.
type Runstate uint8

// As the hypervisor numbers them.
const (
	Runs Runstate = iota
	Waits
	Blocked
	Offline
)

// Runstates takes apart a record of Running.
func (r *Record) Runstates() (from, to Runstate) {
	return Runstate(r.Event >> 8 & 3), Runstate(r.Event >> 4 & 3)
}

// Kind is the event's number without what is put into it.
func (r *Record) Kind() uint32 {
	if r.Event&^runstateBits == Running {
		return Running
	}
	return r.Event
}

// Packed is the vCPU that a word names.
func Packed(word uint32) VCPU { return VCPU{Domain: uint16(word >> 16), Number: uint16(word)} }

// Named is the vCPU that two words name, from the given one on.
func (r *Record) Named(from int) VCPU {
	return VCPU{Domain: uint16(r.Words[from]), Number: uint16(r.Words[from+1])}
}

// Append appends a record as the hypervisor writes it, with its time.
func Append(b []byte, r *Record) []byte {
	b = le.AppendUint32(b, r.Event&eventBits|uint32(r.N)<<wordsShift|hasTime)
	b = le.AppendUint64(b, r.At)
	for _, w := range r.Words[:r.N] {
		b = le.AppendUint32(b, w)
	}
	return b
}
