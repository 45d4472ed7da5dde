package trace

// stamp returns the CPU's time-stamp counter, which Dom0 reads as the hypervisor does.
func stamp() uint64
