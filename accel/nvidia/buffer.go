//go:build cgo

package nvidia

import (
	"math/bits"

	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// buffers are pinned staging buffers for copies of host memory that the device can't access. They are kept by size,
// which is a power of two, up to keptBuffers bytes in all.
type buffers struct {
	ctx   *Context
	spare [64][][]byte
	bytes uint64
}

const (
	leastBuffer = 4 << 10
	keptBuffers = 32 << 20
)

func bufferSize(n uint64) (size uint64, class int) {
	class = bits.Len64(max(n, leastBuffer) - 1)
	return 1 << class, class
}

// take returns a staging buffer of n bytes.
func (b *buffers) take(n uint64) ([]byte, cuda.Result) {
	c := b.ctx
	if n > 1<<46 {
		return nil, cuda.ErrorOutOfMemory
	}
	size, class := bufferSize(n)
	d := c.dev
	d.mu.Lock()
	if l := b.spare[class]; len(l) > 0 {
		mem := l[len(l)-1]
		b.spare[class] = l[:len(l)-1]
		b.bytes -= size
		d.mu.Unlock()
		return mem[:n], cuda.Success
	}
	d.mu.Unlock()
	mem, _, r := driver.AllocHost(c.ctx, size)
	if r != cuda.Success {
		return nil, r
	}
	return mem[:n], cuda.Success
}

// give returns a buffer of take, which must be unused.
func (b *buffers) give(mem []byte) {
	c := b.ctx
	mem = mem[:cap(mem)]
	size, class := bufferSize(uint64(len(mem)))
	d := c.dev
	d.mu.Lock()
	keep := b.bytes+size <= keptBuffers
	if keep {
		b.spare[class] = append(b.spare[class], mem)
		b.bytes += size
	}
	d.mu.Unlock()
	if !keep {
		d.reaper.do(func() {
			if !c.isGone() { // else it is freed with the context
				driver.FreeHost(c.ctx, mem)
			}
		})
	}
}
