// Package trace reads the scheduling events of the hypervisor Xen, in Dom0: which vCPU ran on which CPU, and its time
// slice; wakeups and waiting vCPUs; under Credit2, the credit left.
//
// Xen writes records into a buffer for each CPU, which is memory that Dom0 maps: reading costs no system calls. The
// decoding (Decode, Info, Ring) is pure, from bytes to records, so that it applies to files of xentrace as well.
//
// Callers: the daemon's timeline of vCPUs, and its predictions.
//
// Trust boundary: the hypervisor is trusted, but no number in the shared memory is: other programs may write there,
// too.
package trace

import (
	"encoding/binary"
	"fmt"

	"pegasus/hypervisor/xen/control"
)

// Xen are the hypercalls used, as control.Xen implements them.
type Xen interface {
	Tracing() (control.Tracing, error)
	TraceEvents(mask uint32) error
	TraceCPUs() error
	TraceSize(pages int) error
	Trace(on bool) error
}

// Mapper maps the hypervisor's memory, such as privcmd.Hypercalls.
type Mapper interface {
	Map(domain uint16, frames []uint64, write bool) ([]byte, error)
	Unmap(mem []byte) error
}

// hypervisor is the domain number that owns the buffers.
const hypervisor = 0x7ff2

// Buffers are the trace buffers of all CPUs. Not safe for concurrent use.
type Buffers struct {
	xen     Xen
	mapper  Mapper
	readers *SharedReaders
	was     control.Tracing // the state before Open
	mapped  [][]byte
	rings   []*Ring
	closed  bool
}

// everything is the event mask of a Xen on which no mask was ever set.
const everything = 0x0ffff000

// Open enables events of the given classes, and maps the buffers. Buffers may exist already, since they can be
// created only once and are never removed: then they keep their size, and their other readers keep getting the events
// that they enabled, unless that was everything.
func Open(x Xen, m Mapper, events uint32, pages int) (*Buffers, error) {
	return new(SharedReaders).Open(x, m, events, pages)
}

// Existed reports that the buffers existed before: other programs used, or use, this host's trace.
func (b *Buffers) Existed() bool { return b.was.Frame != 0 }

// Shared reports that a program outside the set has consumed records meanwhile.
func (b *Buffers) Shared() bool {
	b.readers.mu.Lock()
	defer b.readers.mu.Unlock()
	return b.shared()
}

func (b *Buffers) shared() bool {
	for _, r := range b.rings {
		if r != nil && r.shared {
			return true
		}
	}
	return false
}

const (
	pageBytes    = 4096
	maxInfoPages = 4096
)

func (b *Buffers) mapAll(t control.Tracing) error {
	pages := (t.InfoBytes + pageBytes - 1) / pageBytes
	if t.Frame == 0 || pages < 1 || pages > maxInfoPages {
		return fmt.Errorf("the trace buffers of Xen are at frame %#x, with a table of %d bytes", t.Frame, t.InfoBytes)
	}
	var frames []uint64
	for i := range pages {
		frames = append(frames, t.Frame+uint64(i))
	}
	table, err := b.mapper.Map(hypervisor, frames, false)
	if err != nil {
		return fmt.Errorf("the table of Xen's trace buffers: %w", err)
	}
	b.mapped = append(b.mapped, table)
	buffers, err := Info(table)
	if err != nil {
		return err
	}
	for cpu, frames := range buffers {
		if frames == nil { // an offline CPU
			b.rings = append(b.rings, nil)
			continue
		}
		mem, err := b.mapper.Map(hypervisor, frames, true)
		if err != nil {
			return fmt.Errorf("the trace buffer of CPU %d: %w", cpu, err)
		}
		b.mapped = append(b.mapped, mem)
		r := NewRing(mem, b.was.Frame == 0)
		r.moved = b.readers.move(cpu)
		b.rings = append(b.rings, r)
	}
	return nil
}

// CPUs returns the number of the last CPU with a buffer, plus one.
func (b *Buffers) CPUs() int { return len(b.rings) }

// Read calls emit with the records since the last Read, of one CPU after the other, as bytes that are valid until
// emit returns. lost: some of the CPU's records before these were overwritten or not readable; if it comes without
// records, some after the previous ones may have found no room. (Xen records that, too, but not before the next
// event.)
func (b *Buffers) Read(emit func(cpu int, records []byte, lost bool)) {
	for cpu, r := range b.rings {
		if r == nil {
			continue
		}
		b.readers.mu.Lock()
		records, lost := r.Read()
		b.readers.mu.Unlock()
		if len(records) > 0 || lost {
			emit(cpu, records, lost)
		}
		if r.full && !lost {
			emit(cpu, nil, true)
		}
	}
}

// Close releases the buffers. If no other reader of the set has them, the previous event mask is restored;
// tracing is switched off if no foreign reader was seen.
func (b *Buffers) Close() error {
	b.readers.mu.Lock()
	defer b.readers.mu.Unlock()
	return b.close()
}

// Info returns the frames of each CPU's buffer from the table of trace buffers; none for a missing CPU. (Xen's
// public/trace.h has the layout: the number of pages of each buffer, the place of each CPU's list of frames in the
// table, and the lists.)
func Info(table []byte) (frames [][]uint64, err error) {
	if len(table) < 4 {
		return nil, fmt.Errorf("a table of trace buffers has %d bytes", len(table))
	}
	pages, first := int(binary.LittleEndian.Uint16(table)), int(binary.LittleEndian.Uint16(table[2:]))
	if pages == 0 || first == 0 || 4*first > len(table) {
		return nil, fmt.Errorf("the table of trace buffers has %d pages a CPU, and the first one's at word %d of %d", pages, first, len(table)/4)
	}
	last := 0
	for cpu := range (4*first - 2) / 2 {
		at := int(binary.LittleEndian.Uint16(table[2+2*cpu:]))
		var list []uint64
		if at != 0 {
			if at < first || 4*(at+pages) > len(table) {
				return nil, fmt.Errorf("the trace buffer of CPU %d is at words %d to %d of %d", cpu, at, at+pages, len(table)/4)
			}
			for i := range pages {
				list = append(list, uint64(binary.LittleEndian.Uint32(table[4*(at+i):])))
			}
			last = cpu
		}
		frames = append(frames, list)
	}
	return frames[:last+1], nil
}
