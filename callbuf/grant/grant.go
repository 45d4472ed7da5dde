// Package grant is how two domains of Xen share memory and wake each other, by the devices that
// Linux has for that: one domain grants pages of its own to another, which maps them, and event
// channels carry nothing but that something has happened. It decides nothing.
//
// Who calls it: the agent of a domU (guest/xen), which grants, and its hub in Dom0
// (hypervisor/xen), which maps.
//
// Whom it trusts: the kernel. What pages another domain grants, and what is in them, is up to it:
// a mapping of what isn't granted fails.
//
// The layouts are those of Linux's include/uapi/xen, for x86-64.
package grant

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Domain is a domain's number.
type Domain uint16

// Port is an event channel's number in the domain that uses it.
type Port uint32

// Ref is the number under which a domain grants a page.
type Ref uint32

// PageBytes is what a Ref stands for.
const PageBytes = 4096

// open opens a device; one that can be waited for is not blocking.
func open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: is this a domain of Xen, with its modules loaded?", err)
	}
	return f, nil
}
