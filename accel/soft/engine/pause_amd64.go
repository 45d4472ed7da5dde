package engine

// pause tells the core that the thread is spinning.
func pause()
