// Package grant lets two domains of Xen share memory and wake each other, by Linux's devices for that: one
// domain grants pages of its own to another, which maps them, and event channels carry hints without data. It
// contains no policy.
//
// Callers: the agent of a domU (guest/xen), which grants, and its hub in Dom0 (hypervisor/xen), which maps.
//
// Trust boundary: the package trusts the kernel. The other domain decides which pages it grants, and controls
// their contents: mapping a page that is not granted fails.
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

// PageBytes is the size of the page that a Ref identifies.
const PageBytes = 4096

// open opens a device, non-blocking if the flags request it.
func open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: is this a domain of Xen, with its modules loaded?", err)
	}
	return f, nil
}
