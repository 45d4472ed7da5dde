package lane

import "sync"

// Growth adds cores to a launch while it runs, one launch after the other. The zero value is ready. Any goroutine may call Add.
type Growth struct {
	mu     sync.Mutex
	kernel *Kernel
	run    *run // nil: no launch runs that may grow
	spare  int  // the number of cores that the launch may still get
	cores  sync.WaitGroup
}

// Add has up to n more cores take blocks of the launch, and returns how many: none once its last block is begun, and maybe none
// while it pauses. It does not wait for the launch's cores.
func (g *Growth) Add(n int) (added int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, r := g.kernel, g.run; added < n && r != nil && g.spare > 0 && r.next.Load() < r.total && r.pause.tryEnter(); added++ {
		g.spare--
		g.cores.Go(func() { k.guarded(r) })
	}
	return added
}

func (g *Growth) begin(k *Kernel, r *run, spare int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kernel, g.run, g.spare = k, r, spare
}

// end waits for the cores that were added. No more are.
func (g *Growth) end() {
	g.mu.Lock()
	g.kernel, g.run = nil, nil
	g.mu.Unlock()
	g.cores.Wait()
}
