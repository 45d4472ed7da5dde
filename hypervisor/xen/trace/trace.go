// Package trace reads what the hypervisor Xen notes of its scheduling, in Dom0: who ran on which
// CPU, and for how long it may; who woke, and who waits; under Credit2, what credit is left.
//
// Xen writes records into a buffer for each CPU, which is memory that Dom0 maps: to read it
// costs no system calls. The decoding (Decode, Info, Ring) is pure, bytes in and records
// out, so that it works on what xentrace has written to a file as well.
//
// Who calls it: the daemon's picture of when vCPUs ran, and its look at what they will do.
// It trusts the hypervisor, but no number it finds in memory: others may write there, too.
package trace

import (
	"encoding/binary"
	"fmt"

	"pegasus/hypervisor/xen/control"
)

// Xen is what is asked of the hypervisor, such as of control.Xen.
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

// hypervisor is whom the buffers belong to.
const hypervisor = 0x7ff2

// Buffers are the trace buffers of all CPUs. One goroutine uses them.
type Buffers struct {
	xen     Xen
	mapper  Mapper
	company *Company
	was     control.Tracing // before
	mapped  [][]byte
	rings   []*Ring
	closed  bool
}

// everything is what Xen would note if nobody had said what to.
const everything = 0x0ffff000

// Open has events of the given classes noted, and maps the buffers. There may be some already,
// since they can be made once only and are never removed: then they have another size, and
// who else uses them goes on to get the events that it asked for, unless that was everything.
func Open(x Xen, m Mapper, events uint32, pages int) (*Buffers, error) {
	return new(Company).Open(x, m, events, pages)
}

// Existed says that there were buffers before: this host's trace was, or is, somebody else's, too.
func (b *Buffers) Existed() bool { return b.was.Frame != 0 }

// Shared says that somebody else than the company has taken records from the buffers meanwhile.
func (b *Buffers) Shared() bool {
	b.company.mu.Lock()
	defer b.company.mu.Unlock()
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
		if frames == nil { // which isn't online
			b.rings = append(b.rings, nil)
			continue
		}
		mem, err := b.mapper.Map(hypervisor, frames, true)
		if err != nil {
			return fmt.Errorf("the trace buffer of CPU %d: %w", cpu, err)
		}
		b.mapped = append(b.mapped, mem)
		r := NewRing(mem, b.was.Frame == 0)
		r.moved = b.company.move(cpu)
		b.rings = append(b.rings, r)
	}
	return nil
}

// CPUs is one more than the number of the last CPU with a buffer.
func (b *Buffers) CPUs() int { return len(b.rings) }

// Read tells of the records since the last Read, of one CPU after the other, as bytes that are
// used no more when tell returns. If lost, some of a CPU's before these were overwritten or not readable;
// where none come with it, some behind those before may not have found room. (That they didn't, Xen notes
// itself, but not before the next event.)
func (b *Buffers) Read(tell func(cpu int, records []byte, lost bool)) {
	for cpu, r := range b.rings {
		if r == nil {
			continue
		}
		b.company.mu.Lock()
		records, lost := r.Read()
		b.company.mu.Unlock()
		if len(records) > 0 || lost {
			tell(cpu, records, lost)
		}
		if r.full && !lost {
			tell(cpu, nil, true)
		}
	}
}

// Close lets go of the buffers. If nobody else of the company has them, events are noted as they were before;
// no more, if nobody else was seen to read them.
func (b *Buffers) Close() error {
	b.company.mu.Lock()
	defer b.company.mu.Unlock()
	return b.close()
}

// Info reads the table of trace buffers: which frames each CPU's is made of, none for a CPU that
// isn't there. (Xen's public/trace.h has the layout: how many pages each has, where in the
// table each CPU's list of frames is, and the lists.)
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
