// Package xen is what a domU of Xen shares with Dom0: pages of its own, which its kernel grants,
// and an event channel. Where they are it writes into the XenStore.
//
// Who calls it: the agent (guest/agent), in which this package's Machine is put by `pegasus-guest agent`.
//
// Whom it trusts: the hypervisor and Dom0. Processes of the domU it keeps apart: each has a file of
// its own of the kernel's gntalloc, by which it can map its pages, and no other's.
package xen

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"pegasus/callbuf/bell"
	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
	"pegasus/guest/agent"
)

// Here says whether the machine at root is one of Xen's.
func Here(root string) bool {
	kind, _ := os.ReadFile(filepath.Join(root, "sys/hypervisor/type"))
	if strings.TrimSpace(string(kind)) == "xen" {
		return true
	}
	_, err := os.Stat(filepath.Join(root, "dev/xen/xenbus")) // a kernel without the former
	return err == nil
}

// IsDom0 says whether it is the one in which the hub runs.
func IsDom0(root string) bool {
	able, _ := os.ReadFile(filepath.Join(root, "proc/xen/capabilities"))
	return strings.Contains(string(able), "control_d")
}

// How much an agent grants: if nobody says another number, and at least and at most. With less no
// process would find room, and more at once than is most isn't granted.
const (
	DefaultMemory = 64 << 20
	LeastMemory   = 8 << 20
	MostMemory    = 64 << 30
)

// Machine is a domU.
type Machine struct {
	Memory uint64 // what all its processes' segments may take together

	mu      sync.Mutex
	channel *grant.Channel // for OpenBell, which takes it
}

// dom0 is who maps what is granted.
const dom0 = 0

var errDom0 = errors.New("this is Dom0 itself: CUDA programs here need no agent, but `pegasus run`")

// Find makes sure of what the kernel has to have for it. Memory is taken as processes come.
func (m *Machine) Find(shelf *agent.Shelf) (agent.Ground, error) {
	if IsDom0("/") {
		return nil, errDom0
	}
	if err := loadModules(); err != nil {
		return nil, err
	}
	if err := raiseLimit(pages(m.Memory) + region.ControlPages); err != nil {
		return nil, err
	}
	store, err := openStore()
	if err != nil {
		return nil, err
	}
	return &ground{machine: m, shelf: shelf, store: store, memory: m.Memory, segments: make(map[string]segment)}, nil
}

var errNoChannel = errors.New("no event channel yet")

// OpenBell is the end of the event channel that the present ground has told Dom0 of.
func (m *Machine) OpenBell() (bell.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.channel
	if m.channel = nil; c == nil {
		return nil, errNoChannel
	}
	return c, nil
}

func (m *Machine) offer(c *grant.Channel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.channel = c
}
