// Package dev speaks with the devices by which Linux gives programs what Xen has: event
// channels, memory that one domain grants to another, and hypercalls. It decides nothing.
//
// Who calls it: the agent of a domU and the hub of one in Dom0 for memory and events, the
// daemon in Dom0 for hypercalls.
//
// The layouts are those of Linux's include/uapi/xen, for x86-64.
package dev

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

const pageBytes = 4096

// open opens a device; one that can be waited for is not blocking.
func open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: is this a domain of Xen, with its modules loaded?", err)
	}
	return f, nil
}
