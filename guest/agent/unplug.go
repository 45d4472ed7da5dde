package agent

import (
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/region"
)

// unplugged turns a fault on memory that has been removed into an error, until the deferred function that it returns is
// called: a PCI device can be unplugged from a running machine.
func unplugged(err *error) (done func()) {
	was := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(was)
		fault := recover()
		if at, ok := fault.(interface{ Addr() uintptr }); ok && at.Addr() >= region.PageBytes { // not a nil pointer
			*err = ErrUnplugged
		} else if fault != nil {
			panic(fault)
		}
	}
}

// end releases a session after its region is gone, without notifying its processes.
func (s *session) end() {
	close(s.over)
	for _, p := range s.processes {
		s.forget(p)
	}
	os.Remove(s.agent.recordPath())
	unix.Munmap(s.area)
	s.memory.Close()
}
