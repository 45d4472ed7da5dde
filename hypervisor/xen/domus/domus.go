// Package domus provides Xen's guests, called domUs, to the daemon: which of the attached ones exist now, under which
// domain number, and whether they run.
//
// It combines three sources. The attachments are files, one for each name, written by `pegasus attach`: Xen's own
// tools keep no list of definitions. XenStore has the number of a name. The hypervisor reports whether a domU exists
// and runs: it is authoritative, so a XenStore that is slow, or dead, or has lost its data removes no machine.
//
// Callers: the daemon in Dom0, and `pegasus attach` for the files.
//
// Trust boundary: the hypervisor, XenStore, and root, which owns the files, are trusted. Of a domU's own entries in
// XenStore only the presence of its agent is read.
package domus

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/xenstore"
)

// CapabilitiesPath is the file in which a kernel under Xen lists its capabilities.
const CapabilitiesPath = "/proc/xen/capabilities"

// IsDom0 reports whether this system controls a Xen host, by the file at CapabilitiesPath.
func IsDom0(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(text), "control_d")
}

// DomUs are the domUs of a host. It implements hypervisor.Machines. mu guards the fields below it.
type DomUs struct {
	Files Files
	Dial  xenstore.Dialer
	// List returns the hypervisor's domains.
	List func() ([]control.Domain, error)
	// Served returns the domUs with hubs of an earlier daemon, and their names: these hold if XenStore has lost them,
	// and decide which domU a name means if several have it. It may be nil.
	Served func() map[uint16]string
	Log    *slog.Logger

	mu       sync.Mutex
	reported map[string]hypervisor.Machine
	here     map[uint16]bool // domUs with an agent that reports its presence
}

const (
	// lookEvery is the interval of polling the hypervisor and the directory: no event reports that a domU was paused.
	lookEvery = 500 * time.Millisecond
	// readEvery is the interval of reading everything again, in case an event was lost.
	readEvery = 3 * time.Second
)

// Watch implements hypervisor.Machines. It reports nothing before XenStore has answered once: a machine of unknown
// state isn't off.
func (d *DomUs) Watch(ctx context.Context, notify func([]hypervisor.Machine)) {
	names, done := make(chan map[uint16]string), make(chan struct{})
	go func() {
		defer close(done)
		d.followNames(ctx, names)
	}()
	defer func() { <-done }()
	var served map[uint16]string
	if d.Served != nil {
		served = d.Served()
	}
	book, files := newBook(served, d.Log), d.Files.reader(d.Log)
	hyper := complaint{log: d.Log, what: "the hypervisor doesn't say which domains there are: they are taken to be as they were", over: "the hypervisor answers again"}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for first := true; ; {
		select {
		case all := <-names:
			book.name(all, time.Now())
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !book.named {
			continue
		}
		attached := files.read()
		domains, err := d.List()
		if hyper.about(err); err != nil {
			continue
		}
		if all := book.enter(attached, domains); first || d.changed(all) {
			first = false
			d.note(all)
			notify(all)
		}
	}
}

func (d *DomUs) changed(all []hypervisor.Machine) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !reflect.DeepEqual(byName(all), d.reported)
}

func (d *DomUs) note(all []hypervisor.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reported = byName(all)
}

func byName(all []hypervisor.Machine) map[string]hypervisor.Machine {
	m := make(map[string]hypervisor.Machine, len(all))
	for _, a := range all {
		m[a.Domain] = a
	}
	return m
}

// ID returns the current domain number of an attached domU, if it exists.
func (d *DomUs) ID(name string) (id uint16, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.reported[name]
	return m.Xen, m.Xen != 0
}

// Agent reports whether a domU's agent is present, by the agent's own entry in XenStore.
func (d *DomUs) Agent(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.reported[name]
	return m.Xen != 0 && d.here[m.Xen]
}

// complaint logs when a condition begins and ends, and not in between.
type complaint struct {
	log        *slog.Logger
	what, over string
	said       bool
}

func (c *complaint) about(err error) {
	switch {
	case err != nil && !c.said:
		c.log.Warn(c.what, "err", err)
	case err == nil && c.said:
		c.log.Info(c.over)
	}
	c.said = err != nil
}
