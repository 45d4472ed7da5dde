package region

import "runtime/debug"

// CatchFault turns a fault at memory that the caller has mapped, but that has been removed, into the error cause, until
// the deferred function that it returns is called: a PCI device can be unplugged from a running machine, and a machine
// can truncate its region's file on the host. Other faults panic.
func CatchFault(err *error, cause error) (done func()) {
	was := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(was)
		fault := recover()
		if at, ok := fault.(interface{ Addr() uintptr }); ok && at.Addr() >= PageBytes { // not a nil pointer
			*err = cause
		} else if fault != nil {
			panic(fault)
		}
	}
}
