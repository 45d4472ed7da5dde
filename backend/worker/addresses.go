package worker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// AddressLayout describes the address layout with which a device is opened, and the worker's functions that the device
// calls.
type AddressLayout struct {
	// Device memory has addresses in [DeviceBase, +DeviceBytes), reserved in the worker (PROT_NONE) for the device to
	// map over.
	DeviceBase, DeviceBytes uint64
	// The arena, at ArenaBase in guest and worker. ArenaBase is 0 if no common address was found; host memory is then
	// addressed by arena offsets only.
	Arena     []byte
	ArenaBase uint64
	// Shared is the arena in the form that copy endpoints use, wherever it is mapped.
	Shared []byte
	// The device calls Quota before it takes device memory (delta > 0), and takes it only if Quota returns true; and
	// when it returns memory (delta < 0).
	Quota func(delta int64) bool
	// The device calls Swapped when it evicts memory for other processes or restores it: bytes out and in, one of which
	// is 0, and bytes now evicted.
	Swapped func(out, in, away uint64)
	// Turn decides when work may hold an engine, for a device that can wait at that point.
	Turn accel.Turn
	// The device calls OnTimeout when a kernel exceeds its timeout, before the kernel ends.
	OnTimeout func()
	// The device calls OnFault with a description of a kernel's fault, before a call returns its error.
	OnFault func(r cuda.Result, text string)
}

// mapTimeout bounds the time in which a guest must propose its addresses.
const mapTimeout = 10 * time.Second

// agreeOnAddresses replies to the guest's proposals on the worker socket until both windows are reserved, or the guest
// has no further proposals.
func agreeOnAddresses(conn *net.UnixConn, segment *os.File, l callbuf.Layout, j *Job) (p AddressLayout, last callbuf.MapRequest, err error) {
	conn.SetReadDeadline(time.Now().Add(mapTimeout))
	defer conn.SetReadDeadline(time.Time{})
	for range 2 * callbuf.NumBases {
		message, err := proposal(conn)
		if err != nil {
			return p, last, fmt.Errorf("agree on addresses: %w", err)
		}
		m, err := callbuf.ParseMap(message)
		if err != nil {
			return p, last, err
		}
		arena, device := p.mapArena(segment, l, j, m.Arena), p.reserve(j, m.Device)
		if arena && device {
			return p, m, p.mapAnywhere(segment, l, j) // the reply is sent when the device is open
		}
		if !device && m.Device == callbuf.NoWindow { // the guest has no further proposals
			answerMap(conn, cuda.ErrorSystemNotReady, arena, false)
			return p, last, fmt.Errorf("reserve device memory: no free range of %d bytes; check the limit of address space (ulimit -v)", j.DeviceBytes)
		}
		if err := answerMap(conn, cuda.Success, arena, device); err != nil {
			return p, last, err
		}
	}
	return p, last, fmt.Errorf("agree on addresses: more than %d proposals", 2*callbuf.NumBases)
}

// proposal reads the guest's next proposal. It skips rings: a hub cannot determine which process rang it and rings the
// workers of all its processes, including one that is still in this phase.
func proposal(conn *net.UnixConn) ([]byte, error) {
	b := make([]byte, callbuf.MapBytes+1)
	for {
		if n, err := conn.Read(b); err != nil || n != ringBytes {
			return b[:n], err
		}
	}
}

// ringBytes is the length of a ring message, which has no content.
const ringBytes = 1

func answerMap(conn *net.UnixConn, r cuda.Result, arena, device bool) error {
	_, err := conn.Write(callbuf.MapReply{Result: int32(r), ArenaOK: arena, DevOK: device}.Append(nil))
	return err
}

// mapArena tries to map the arena at a candidate and reports success; a guest without an arena also succeeds. A mapped
// arena stays where it is: Xen grants can be mapped only once.
func (p *AddressLayout) mapArena(segment *os.File, l callbuf.Layout, j *Job, i uint32) bool {
	switch {
	case i == callbuf.NoWindow || l.ArenaBytes == 0:
		p.ArenaBase = 0
		return true
	case i >= callbuf.NumBases:
		return false
	case p.Arena != nil:
		return p.ArenaBase == callbuf.ArenaBases[i]
	}
	parts, ok := j.parts(l).Part(l.ArenaOffset, l.ArenaBytes)
	if !ok {
		return false
	}
	mem, ok := callbuf.MapPartsAt(segment, parts, callbuf.ArenaBases[i])
	if ok {
		p.Arena, p.ArenaBase = mem, callbuf.ArenaBases[i]
	}
	return ok
}

// mapAnywhere maps an arena that has no common address.
func (p *AddressLayout) mapAnywhere(segment *os.File, l callbuf.Layout, j *Job) (err error) {
	if p.Arena != nil || l.ArenaBytes == 0 {
		return nil
	}
	parts, ok := j.parts(l).Part(l.ArenaOffset, l.ArenaBytes)
	if !ok {
		return errors.New("map the arena: the segment has none")
	}
	p.Arena, err = callbuf.MapParts(segment, parts)
	return err
}

// reserve tries to reserve the device window at a candidate. For a guest that could map none it reserves the first
// candidate that is free in the worker.
func (p *AddressLayout) reserve(j *Job, i uint32) bool {
	bases := callbuf.DeviceBases(j.Slice)
	if i == callbuf.NoWindow {
		for k := range bases {
			if p.reserve(j, uint32(k)) {
				return true
			}
		}
		return false
	}
	if i >= callbuf.NumBases {
		return false
	}
	if p.DeviceBase == bases[i] {
		return true
	}
	if p.DeviceBase != 0 {
		unix.Syscall(unix.SYS_MUNMAP, uintptr(p.DeviceBase), uintptr(p.DeviceBytes), 0)
		p.DeviceBase = 0
	}
	if !reserveAt(bases[i], j.DeviceBytes) {
		return false
	}
	p.DeviceBase, p.DeviceBytes = bases[i], j.DeviceBytes
	return true
}

// reserveAt reserves a range of addresses, unless a part is in use, and reports success.
func reserveAt(base, bytes uint64) bool {
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(base), uintptr(bytes), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	if errno != 0 {
		return false
	}
	if uint64(at) != base { // kernels before 4.17 ignore the flag and treat the address as a hint
		unix.Syscall(unix.SYS_MUNMAP, at, uintptr(bytes), 0)
		return false
	}
	return true
}
