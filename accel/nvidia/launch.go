//go:build cgo

package nvidia

import (
	"hash/maphash"

	"pegasus/accel"
	"pegasus/accel/internal/frame"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// launch queues a kernel. The driver refuses launches that exceed the hardware's limits.
func (s *Stream) launch(w *accel.Launch, done accel.Done) cuda.Result {
	c := s.ctx
	f, r := c.function(w)
	if r != cuda.Success {
		return r
	}
	if r := f.allow(c, w); r != cuda.Success {
		return r
	}
	p := &inflightOp{class: accel.Compute, key: f.key(w), watched: watched{kernel: f.layout.Name, kernels: 1}, done: done}
	l := f.launch(w)
	if w.Module.(*Module).prints {
		c.mayPrint(p)
	}
	if r := s.perform(p, func() cuda.Result { return l.Run(c.ctx, s.h) }); r != cuda.Success {
		return r
	}
	c.dev.watchdog.arm()
	return cuda.Success
}

// function returns the function of a launch with complete parameters.
func (c *Context) function(w *accel.Launch) (*function, cuda.Result) {
	m, ok := w.Module.(*Module)
	if !ok || m.ctx != c || m.unloaded || w.Function < 0 || w.Function >= len(m.functions) {
		return nil, cuda.ErrorInvalidHandle
	}
	f := &m.functions[w.Function]
	if uint64(len(w.Params)) < uint64(f.layout.ParamBytes) {
		return nil, cuda.ErrorInvalidValue
	}
	return f, cuda.Success
}

// launch returns a launch in the driver's form.
func (f *function) launch(w *accel.Launch) driver.Launch {
	return driver.Launch{
		Function: f.h, Grid: w.Grid, Block: w.Block, Shared: w.SharedBytes,
		Cooperative: w.Cooperative, Cluster: w.Cluster, Params: w.Params[:f.layout.ParamBytes], Offsets: f.offsets,
	}
}

// Attributes of functions (CUfunction_attribute).
const (
	functionMaxThreads       = 0
	functionStaticShared     = 1
	functionConst            = 2
	functionLocal            = 3
	functionRegisters        = 4
	functionPTXVersion       = 5
	functionBinaryVersion    = 6
	functionMaxDynamicShared = 8
	functionLargeClusters    = 14
)

// portableCluster is the maximum number of blocks of a cluster by default.
const portableCluster = 8

// usualLocal is the least local memory, in bytes, that threads have by default.
const usualLocal = 1 << 10

// needStack accounts for the memory that the kernel's threads need beyond the context's current stack memory.
func (f *function) needStack(c *Context) (r cuda.Result) {
	if n := uint64(max(f.layout.LocalBytes, 0)); n > usualLocal && n > c.extra.limits[limitStack] {
		_, r = c.extra.need(c, limitStack, n)
	}
	return r
}

// allow raises the limits of a function to the shared memory and the cluster size of this launch. Guests set these
// attributes by themselves, without a check: the driver refuses values that exceed the hardware's.
func (f *function) allow(c *Context, w *accel.Launch) cuda.Result {
	if r := f.needStack(c); r != cuda.Success {
		return r
	}
	if n := w.Cluster; !f.large && uint64(n[0])*uint64(n[1])*uint64(n[2]) > portableCluster {
		if r := driver.SetFunctionAttribute(c.ctx, f.h, functionLargeClusters, 1); r != cuda.Success {
			return r
		}
		f.large = true
	}
	shared := w.SharedBytes
	if shared <= f.shared {
		return cuda.Success
	}
	if shared > 1<<30 {
		return cuda.ErrorInvalidValue
	}
	if r := driver.SetFunctionAttribute(c.ctx, f.h, functionMaxDynamicShared, int32(shared)); r != cuda.Success {
		return r
	}
	f.shared = shared
	return cuda.Success
}

var keySeed = maphash.MakeSeed()

// key returns the same value for launches that take about the same time.
func (f *function) key(w *accel.Launch) uint64 {
	return maphash.Comparable(keySeed, struct {
		f           *function
		grid, block [3]uint32
		cluster     [3]uint32
		shared      uint32
	}{f, w.Grid, w.Block, w.Cluster, w.SharedBytes}) | 1
}

// Predict returns for how long a launch will hold the device (ns), 0 if no launch like it was seen recently.
func (d *Device) Predict(w accel.Work) int64 {
	l := frame.LaunchOf(w)
	if l == nil {
		return 0
	}
	m, ok := l.Module.(*Module)
	if !ok || l.Function < 0 || l.Function >= len(m.functions) {
		return 0
	}
	return d.history.Find(m.functions[l.Function].key(l))
}
