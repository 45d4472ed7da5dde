package callbuf

// pause tells the core that the caller spins.
func pause()
