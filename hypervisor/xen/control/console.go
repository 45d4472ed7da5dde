package control

import "fmt"

// Press triggers the hypervisor's console keys: `r` prints the schedule. The output is complete when the call
// returns.
func (x *Xen) Press(keys string) error {
	const sysctlDebugKeys = 7
	mem, at := x.behind()
	arg := x.argument()
	le.PutUint64(arg[sysctlBody:], at)
	le.PutUint32(arg[sysctlBody+8:], uint32(copy(mem, keys)))
	if err := x.sysctl(sysctlDebugKeys, arg); err != nil {
		return fmt.Errorf("press %q on Xen's console: %w", keys, err)
	}
	return nil
}

// Console returns the hypervisor's console output from an index on, as far as it is still in the buffer, and the
// index after it. An index is one that was returned here, or 0; reading a long output takes several calls, until one
// returns nothing. Other readers get the same output.
func (x *Xen) Console(from uint32) (text []byte, next uint32, err error) {
	const sysctlReadConsole = 1
	mem, at := x.behind()
	arg := x.argument()
	body := arg[sysctlBody:]
	body[1] = 1 // from an index on
	le.PutUint32(body[4:], from)
	le.PutUint64(body[8:], at)
	le.PutUint32(body[16:], uint32(len(mem)))
	if err := x.sysctl(sysctlReadConsole, arg); err != nil {
		return nil, from, fmt.Errorf("read Xen's console: %w", err)
	}
	n := le.Uint32(body[16:])
	if uint64(n) > uint64(len(mem)) {
		return nil, from, fmt.Errorf("Xen reports %d bytes of its console written to a buffer of %d", n, len(mem))
	}
	return append([]byte(nil), mem[:n]...), le.Uint32(body[4:]), nil
}
