package lane

import (
	"sync"
	"weak"
)

// maxKept bounds the bytes of compiled programs that are kept for later launches. A kernel that calls functions by their
// addresses is compiled with all functions of which the address is taken, so a module's programs together may be hundreds
// of times as large as its text.
const maxKept = 1 << 30

// keeper drops programs when their total size is too large, the oldest first. Kernels launched since their last turn
// are passed over once. A launch that executes a dropped program continues; the next one compiles it again.
type keeper struct {
	mu    sync.Mutex
	most  int
	bytes int
	kept  []kept // in the order in which they were compiled, or passed over
}

// kept is a program in the cache.
type kept struct {
	kernel weak.Pointer[Kernel] // its module may have been unloaded
	bytes  int
}

var compiledNow = keeper{most: maxKept}

// keep adds the program just compiled for a kernel.
func (c *keeper) keep(k *Kernel, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += bytes
	for over := 2 * len(c.kept); c.bytes > c.most && len(c.kept) > 0; over-- {
		e := c.kept[0]
		c.kept = c.kept[1:]
		if old := e.kernel.Value(); old != nil {
			if old.recent.Swap(false) && over > 0 {
				c.kept = append(c.kept, e)
				continue
			}
			old.prog.Store(nil)
		}
		c.bytes -= e.bytes
	}
	c.kept = append(c.kept, kept{weak.Make(k), bytes})
}
