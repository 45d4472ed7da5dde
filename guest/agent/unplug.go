package agent

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/region"
)

// unplugged makes the fault of memory that isn't there any more an error, until what it returns
// is called, deferred: a PCI device can be taken out of a machine that runs.
func unplugged(err *error) (done func()) {
	was := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(was)
		fault := recover()
		if at, ok := fault.(interface{ Addr() uintptr }); ok && at.Addr() >= region.PageBytes { // no nil pointer
			*err = ErrUnplugged
		} else if fault != nil {
			panic(fault)
		}
	}
}

// end leaves a region that is no more: its processes are on their own.
func (s *session) end() {
	close(s.over)
	for _, p := range s.processes {
		s.forget(p)
	}
	os.Remove(s.agent.recordPath())
	unix.Munmap(s.area)
	s.ground.Close()
}
