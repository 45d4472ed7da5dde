package exec

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// Limits of a launch.
const (
	maxSharedBytes = 228 << 10
	// MaxLocalBytes bounds the local memory of a block, which lies in the memory of the host.
	MaxLocalBytes = 64 << 20
)

// MostThreads returns how many threads with so many bytes of local memory each a block may have.
func MostThreads(local int) int { return min(MaxLocalBytes/max(local, 1), ir.MaxThreads) }

// Run executes a launch and returns nil when all blocks have ended, or the fault that ended it early. After Cancel is
// set it returns within about a millisecond, with ptx.ErrLaunchTimeout.
func (p *Program) Run(l *Launch) *Fault {
	if f := p.check(l); f != nil {
		return f
	}
	r := runs.Get().(*run)
	r.launch, r.total, r.meeting = l, uint64(l.Grid[0])*uint64(l.Grid[1])*uint64(l.Grid[2]), 8
	r.next, r.begun = atomic.Uint64{}, atomic.Int32{}
	cores := int(min(uint64(max(l.Cores, 1)), r.total))
	most := cores
	if l.Growth != nil {
		most = max(cores, int(min(uint64(max(l.MostCores, 1)), r.total)))
	}
	r.watches = append(r.watches[:0], make([]stopwatch, most)...)
	r.pause.begin(cores, most)
	if fault := p.runOn(r, cores, most); fault != nil {
		return fault
	}
	r.launch = nil
	runs.Put(r)
	return nil
}

// runs are reused: a launch may be brief. Only runs that ended well are, so all fields but those that launch sets are
// unchanged.
var runs = sync.Pool{New: func() any { return new(run) }}

func (p *Program) runOn(r *run, cores, most int) *Fault {
	if most == 1 {
		p.work(r)
		return r.fault
	}
	var wg sync.WaitGroup
	for range cores - 1 {
		wg.Go(func() { p.guarded(r) })
	}
	g := r.launch.Growth
	if grows := most > cores; grows {
		g.begin(p, r, most-cores)
		p.guarded(r)
		g.end()
	} else {
		p.guarded(r)
	}
	wg.Wait()
	if r.thrown != nil {
		panic(r.thrown)
	}
	return r.fault
}

// guarded is work with a recover. A fault of the machine stops the other cores as well, and then becomes a panic of
// Run, for its caller to recover.
func (p *Program) guarded(r *run) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if thrown := recover(); thrown != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.thrown = thrown
			r.stop.Store(true)
		}
	}()
	p.work(r)
}

func (p *Program) check(l *Launch) *Fault {
	bad := func(result int32, msg string) *Fault { return &Fault{Result: result, Kernel: p.Func.Name, Msg: msg} }
	threads := uint64(l.Block[0]) * uint64(l.Block[1]) * uint64(l.Block[2])
	switch {
	case threads == 0 || l.Block[0] > ir.MaxThreads || l.Block[1] > ir.MaxThreads || l.Block[2] > ir.MaxThreads || threads > ir.MaxThreads:
		return bad(ptx.ErrInvalidValue, "block size out of range")
	case l.Grid[0] == 0 || l.Grid[1] == 0 || l.Grid[2] == 0 || l.Grid[0] > 1<<31-1 || l.Grid[1] > 65535 || l.Grid[2] > 65535:
		return bad(ptx.ErrInvalidValue, "grid size out of range")
	case len(l.Params) < p.Func.ParamBytes:
		return bad(ptx.ErrInvalidValue, "too few bytes of parameters")
	case p.Func.ReqNTid[0] != 0 && p.Func.ReqNTid != l.Block:
		return bad(ptx.ErrInvalidValue, "block is not of the size that the kernel requires")
	case threads*uint64(p.LocalBytes) > MaxLocalBytes:
		return bad(ptx.ErrLaunchOutOfResources, "too much local memory")
	case uint64(l.SharedBytes)+uint64(p.Func.StaticShared) > maxSharedBytes:
		return bad(ptx.ErrLaunchOutOfResources, "too much shared memory")
	}
	return nil
}

// run is the state that the workers of a launch share.
type run struct {
	launch *Launch
	total  uint64
	next   atomic.Uint64 // block to run next
	stop   atomic.Bool   // after a fault

	// meeting is the workspace of the grid's barrier: 32 bits of size, 32 of barrier.
	meeting uint64

	printing sync.Mutex // held while something is written to Stdout or Stderr

	pause   pause
	watches []stopwatch  // one a core
	begun   atomic.Int32 // cores that have

	mu     sync.Mutex
	fault  *Fault // guarded by mu; the first one
	thrown any    // guarded by mu; a panic
}

func (r *run) fail(f *Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.fault = f
	}
	r.stop.Store(true) // now that no worker that stops for it can be first
}

// cancelled reports whether the launch is to end. It blocks while the launch is paused.
func (r *run) cancelled() bool {
	if r.pause.due.Load() {
		r.pause.stop(r.launch.Resume)
	}
	return r.stop.Load() || r.launch.Cancel != nil && r.launch.Cancel.Load()
}

// left removes a core from the launch.
func (r *run) left() {
	r.pause.leave()
	if left := r.launch.Left; left != nil && !r.pause.single {
		left()
	}
}

// look is cancelled for cores that have computed for a while: it also checks whether the launch is to pause, and
// measures.
func (r *run) look(s *stopwatch) (cancelled bool) {
	l := r.launch
	if m := l.Meter; m != nil && m.On() {
		s.measure(m)
	}
	if l.Yield != nil && l.Yield() {
		r.pause.stop(l.Resume)
	}
	return r.cancelled()
}
