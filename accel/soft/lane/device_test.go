package lane

import (
	"bytes"
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"
	"unsafe"

	"pegasus/accel/ptx"
)

// device is the memory of a test.
type device struct {
	t    testing.TB
	next uint64
	bufs []buffer
}

type buffer struct {
	addr uint64
	mem  []byte
}

func newDevice(t testing.TB) *device { return &device{t: t, next: 0x7f00_0000_0000} }

func (d *device) Region(addr uint64) (uint64, []byte) {
	for _, b := range d.bufs {
		if addr >= b.addr && addr-b.addr < uint64(len(b.mem)) {
			return b.addr, b.mem
		}
	}
	return 0, nil
}

func (d *device) Beside(uint64, uint64) []byte { return nil }

// alloc returns memory with a gap behind it, aligned as a device's.
func (d *device) alloc(size, _ uint64) (uint64, []byte, error) {
	words := make([]uint64, (size+7)/8+1)
	b := buffer{d.next, unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)}
	d.next += (size + 0x1fff) &^ 0xfff
	d.bufs = append(d.bufs, b)
	return b.addr, b.mem, nil
}

func (d *device) buffer(size int) buffer {
	d.alloc(uint64(size), 0)
	return d.bufs[len(d.bufs)-1]
}

func (b buffer) word(i int) uint32         { return binary.LittleEndian.Uint32(b.mem[4*i:]) }
func (b buffer) setWord(i int, v uint32)   { binary.LittleEndian.PutUint32(b.mem[4*i:], v) }
func (b buffer) float(i int) float32       { return math.Float32frombits(b.word(i)) }
func (b buffer) setFloat(i int, v float32) { b.setWord(i, math.Float32bits(v)) }
func (b buffer) long(i int) uint64         { return binary.LittleEndian.Uint64(b.mem[8*i:]) }

// load parses a module and places it.
func (d *device) load(src []byte) *Image {
	d.t.Helper()
	m, err := ptx.Parse(src)
	if err != nil {
		d.t.Fatal(err)
	}
	im, err := Load(m, d.alloc)
	if err != nil {
		d.t.Fatal(err)
	}
	return im
}

// launch describes a launch of a kernel with arguments packed as its parameters are.
func (d *device) launch(k *Kernel, grid, block [3]uint32, args ...any) *Launch {
	d.t.Helper()
	var p []byte
	for i, a := range args {
		for len(p) < k.fn.Params[i].Offset {
			p = append(p, 0)
		}
		switch v := a.(type) {
		case buffer:
			p = binary.LittleEndian.AppendUint64(p, v.addr)
		case uint64:
			p = binary.LittleEndian.AppendUint64(p, v)
		case uint32:
			p = binary.LittleEndian.AppendUint32(p, v)
		case int:
			p = binary.LittleEndian.AppendUint32(p, uint32(v))
		case float32:
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
		default:
			d.t.Fatalf("argument %T", a)
		}
	}
	return &Launch{Grid: grid, Block: block, Params: p, Cores: 2, Memory: d, Cancel: new(atomic.Bool), Stdout: new(bytes.Buffer)}
}

func (d *device) kernel(im *Image, name string) *Kernel {
	d.t.Helper()
	k, err := im.Kernel(name)
	if err != nil {
		d.t.Fatal(err)
	}
	return k
}

// run launches and expects no fault.
func (d *device) run(k *Kernel, grid, block [3]uint32, args ...any) {
	d.t.Helper()
	if f := k.Run(d.launch(k, grid, block, args...)); f != nil {
		d.t.Fatal(f)
	}
}

func x(n int) [3]uint32     { return [3]uint32{uint32(n), 1, 1} }
func xy(a, b int) [3]uint32 { return [3]uint32{uint32(a), uint32(b), 1} }
