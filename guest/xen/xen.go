// Package xen implements the memory that a domU of Xen shares with Dom0: pages of its own, which its kernel grants, and
// an event channel. It publishes their location in the XenStore.
//
// Callers: the agent (guest/agent), for which `pegasus-guest agent` supplies this package's Machine.
//
// Trust boundary: it trusts the hypervisor and Dom0, and isolates the domU's processes from each other: each has its
// own file of the kernel's gntalloc, through which it can map its own pages only.
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

// Here reports whether the machine at root runs under Xen.
func Here(root string) bool {
	kind, _ := os.ReadFile(filepath.Join(root, "sys/hypervisor/type"))
	if strings.TrimSpace(string(kind)) == "xen" {
		return true
	}
	_, err := os.Stat(filepath.Join(root, "dev/xen/xenbus")) // a kernel without that file
	return err == nil
}

// IsDom0 reports whether the machine at root is Dom0, in which the hub runs.
func IsDom0(root string) bool {
	able, _ := os.ReadFile(filepath.Join(root, "proc/xen/capabilities"))
	return strings.Contains(string(able), "control_d")
}

// Limits of the memory that an agent grants, and the default. Below the least no process would find room, and more than
// the most is never granted at once.
const (
	DefaultMemory = 64 << 20
	LeastMemory   = 8 << 20
	MostMemory    = 64 << 30
)

// Machine is a domU.
type Machine struct {
	Memory uint64 // limit of all its processes' segments together

	mu      sync.Mutex
	channel *grant.Channel // consumed by OpenBell
}

// dom0 is the domain that maps the granted pages.
const dom0 = 0

var errDom0 = errors.New("this is Dom0 itself: CUDA programs here need no agent, but `pegasus run`")

// Find loads the kernel modules and raises the limit that it needs. Memory is granted as processes connect.
func (m *Machine) Find(fdStore *agent.FDStore) (agent.SharedMemory, error) {
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
	return &sharedMemory{machine: m, fdStore: fdStore, store: store, memory: m.Memory, segments: make(map[string]segment)}, nil
}

var errNoChannel = errors.New("no event channel yet")

// OpenBell returns the end of the event channel that the present sharedMemory has published to Dom0.
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
