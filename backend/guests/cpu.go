package guests

// cpuTime returns a worker's time on the host's CPUs in nanoseconds, as last readable. Registry.mu is held.
func (g *guest) cpuTime() int64 {
	if g.worker == nil || g.ended {
		return g.cpu
	}
	if ns, ok := g.worker.CPUTime(); ok {
		g.cpu = max(g.cpu, ns)
	}
	return g.cpu
}

// readFinalCPUTime reads the CPU time of an ended worker, which is final.
func (g *guest) readFinalCPUTime() {
	reg := g.dom.reg
	reg.mu.Lock()
	defer reg.mu.Unlock()
	g.cpuTime()
	g.ended = true
}
