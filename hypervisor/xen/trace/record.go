package trace

import "encoding/binary"

// Record is an event that a CPU recorded.
type Record struct {
	CPU   int
	Event uint32 // its number; see the constants
	At    uint64 // the CPU's time-stamp counter
	N     int    // number of valid words
	Words [7]uint32
}

// Events. A number's upper bits are its class, so that whole classes can be chosen.
const (
	AllSchedule = 0x0002f000 // all classes used here, for Buffers

	Lost      = 0x0001f001 // {number, domain and vCPU, first lost one's time in two words}
	wrap      = 0x0001f002 // fills the end of a buffer
	cpuChange = 0x0001f003 // {CPU, bytes}, in files: the CPU of the records that follow

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
	runstateBits = 0x330 // the bits of the old and the new state in the number of Running

	hasTime      = 1 << 31
	wordsShift   = 28
	eventBits    = 1<<wordsShift - 1
	unlimited    = 1<<32 - 1 // as the time that an idle CPU may run
	headerBytes  = 4
	timeBytes    = 8
	maxWordCount = 7
)

var le = binary.LittleEndian

// Decode calls emit with the records in a CPU's bytes, which begin with a whole record, and returns the number of
// bytes of whole records. A record without a time has that of the one before, or at.
func Decode(cpu int, at uint64, b []byte, emit func(*Record)) (used int) {
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
		if r.Event == wrap { // its time, if any, is invalid
			continue
		}
		at = r.At
		emit(&r)
	}
	return used
}

// decode does the same as Decode, but reports lost records twice: at the time of the first one, from which the CPU's
// state is unknown, and when the buffer had room again.
func decode(cpu int, at uint64, b []byte, emit func(*Record)) {
	Decode(cpu, at, b, func(r *Record) {
		if since := uint64(r.Words[2]) | uint64(r.Words[3])<<32; r.Event == Lost && r.N >= 4 && at < since && since < r.At {
			first := *r
			first.At = since
			emit(&first)
		}
		at = r.At
		emit(r)
	})
}

// VCPU identifies a vCPU. Those of idle CPUs belong to domain Idle.
type VCPU struct{ Domain, Number uint16 }

// Idle is the domain of the vCPUs of idle CPUs.
const Idle = 0x7fff

// A Runstate is a vCPU's runstate.
type Runstate uint8

// The hypervisor's values.
const (
	Runs Runstate = iota
	Waits
	Blocked
	Offline
)

// Runstates returns the states in a record of Running.
func (r *Record) Runstates() (from, to Runstate) {
	return Runstate(r.Event >> 8 & 3), Runstate(r.Event >> 4 & 3)
}

// Kind returns the event's number without the runstates in it.
func (r *Record) Kind() uint32 {
	if r.Event&^runstateBits == Running {
		return Running
	}
	return r.Event
}

// Packed returns the vCPU in one word.
func Packed(word uint32) VCPU { return VCPU{Domain: uint16(word >> 16), Number: uint16(word)} }

// Named returns the vCPU in two words, from the given one on.
func (r *Record) Named(from int) VCPU {
	return VCPU{Domain: uint16(r.Words[from]), Number: uint16(r.Words[from+1])}
}

// Append appends a record in the hypervisor's format, with its time.
func Append(b []byte, r *Record) []byte {
	b = le.AppendUint32(b, r.Event&eventBits|uint32(r.N)<<wordsShift|hasTime)
	b = le.AppendUint64(b, r.At)
	for _, w := range r.Words[:r.N] {
		b = le.AppendUint32(b, w)
	}
	return b
}
