package engine

// pause executes the processor's spin-wait hint.
func pause()
