package exec

import "sync"

// Growth adds cores to a launch while it runs; it serves one launch after the other. The zero value is ready. Any
// goroutine may call Add.
type Growth struct {
	mu    sync.Mutex
	prog  *Program
	run   *run // nil: no launch runs that may grow
	spare int  // the number of cores that the launch may still get
	cores sync.WaitGroup
}

// Add has up to n more cores take blocks of the launch, and returns how many: none once the last block has begun, and
// maybe none while the launch pauses. It does not wait for the launch's cores.
func (g *Growth) Add(n int) (added int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, r := g.prog, g.run; added < n && r != nil && g.spare > 0 && r.next.Load() < r.total && r.pause.tryEnter(); added++ {
		g.spare--
		g.cores.Go(func() { p.guarded(r) })
	}
	return added
}

func (g *Growth) begin(p *Program, r *run, spare int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.prog, g.run, g.spare = p, r, spare
}

// end waits for the cores that were added. No more are.
func (g *Growth) end() {
	g.mu.Lock()
	g.prog, g.run = nil, nil
	g.mu.Unlock()
	g.cores.Wait()
}
