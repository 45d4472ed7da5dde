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

// Place is where a device is opened: the addresses that guest and worker share.
type Place struct {
	// Device memory has addresses in [DeviceBase, +DeviceBytes), reserved here
	// (PROT_NONE) for the device to map over.
	DeviceBase, DeviceBytes uint64
	// The arena, which lies at ArenaBase in guest and worker. ArenaBase is 0 if there was
	// no such place; host memory is then known by arena offsets only.
	Arena     []byte
	ArenaBase uint64
	// Shared is the arena as ends of copies have it, wherever that is here.
	Shared []byte
	// Quota is to be asked before device memory is taken (delta > 0), and told
	// when it is given back.
	Quota func(delta int64) bool
	// Swapped is to be told of device memory that leaves the accelerator for others',
	// or comes back: so many bytes, one of which is 0, and how many are away now.
	Swapped func(out, in, away uint64)
	// Turn says when work may hold an engine, to a device that can wait at that point.
	Turn accel.Turn
	// OnTimeout is to be called when a kernel runs for too long, before it ends.
	OnTimeout func()
	// OnFault is to be called with a description of a kernel's fault, before a call returns its error.
	OnFault func(r cuda.Result, text string)
}

// mapTimeout is how long a guest may take to find its places.
const mapTimeout = 10 * time.Second

// agree answers the guest's proposals on the worker socket until both windows are
// settled, or the guest has no more to propose.
func agree(conn *net.UnixConn, segment *os.File, l callbuf.Layout, j *Job) (p Place, last callbuf.MapRequest, err error) {
	conn.SetReadDeadline(time.Now().Add(mapTimeout))
	defer conn.SetReadDeadline(time.Time{})
	for range 2 * callbuf.NumBases {
		said, err := proposal(conn)
		if err != nil {
			return p, last, fmt.Errorf("wait for the guest to map: %w", err)
		}
		m, err := callbuf.ParseMap(said)
		if err != nil {
			return p, last, err
		}
		arena, device := p.mapArena(segment, l, j, m.Arena), p.reserve(j, m.Device)
		if arena && device {
			return p, m, p.mapAnywhere(segment, l, j) // answered when the device is open
		}
		if !device && m.Device == callbuf.NoWindow { // the guest has no more to propose
			answerMap(conn, cuda.ErrorSystemNotReady, arena, false)
			return p, last, fmt.Errorf("no room for device memory, %d bytes of addresses: is this process limited (ulimit -v)?", j.DeviceBytes)
		}
		if err := answerMap(conn, cuda.Success, arena, device); err != nil {
			return p, last, err
		}
	}
	return p, last, fmt.Errorf("guest proposed too many places")
}

// proposal reads what the guest proposes. A hub that was rung doesn't know by whom, and rings at the
// workers of all its processes: also at one that isn't so far yet.
func proposal(conn *net.UnixConn) ([]byte, error) {
	b := make([]byte, callbuf.MapBytes+1)
	for {
		if n, err := conn.Read(b); err != nil || n != ringBytes {
			return b[:n], err
		}
	}
}

// ringBytes is what a ring has, which says nothing more.
const ringBytes = 1

func answerMap(conn *net.UnixConn, r cuda.Result, arena, device bool) error {
	_, err := conn.Write(callbuf.MapReply{Result: int32(r), ArenaOK: arena, DevOK: device}.Append(nil))
	return err
}

// mapArena tries to map the arena at a candidate; to have none is fine too. Where it was mapped
// it stays: what a domain of Xen grants can be mapped only once.
func (p *Place) mapArena(segment *os.File, l callbuf.Layout, j *Job, i uint32) bool {
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

// mapAnywhere maps an arena that has no address of its own.
func (p *Place) mapAnywhere(segment *os.File, l callbuf.Layout, j *Job) (err error) {
	if p.Arena != nil || l.ArenaBytes == 0 {
		return nil
	}
	parts, ok := j.parts(l).Part(l.ArenaOffset, l.ArenaBytes)
	if !ok {
		return errors.New("the segment has no arena")
	}
	p.Arena, err = callbuf.MapParts(segment, parts)
	return err
}

// reserve tries to reserve the device window at a candidate. A guest that could
// map none still gets a device: at the first place that fits here.
func (p *Place) reserve(j *Job, i uint32) bool {
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

// reserveAt reserves a range of addresses, unless something is there already.
func reserveAt(base, bytes uint64) bool {
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(base), uintptr(bytes), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	if errno != 0 {
		return false
	}
	if uint64(at) != base { // a kernel before 4.17 took the flag for a hint
		unix.Syscall(unix.SYS_MUNMAP, at, uintptr(bytes), 0)
		return false
	}
	return true
}
