//go:build cgo && libvirt_dlopen

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/hypervisor/kvm"
	report "pegasus/hypervisor/libvirt"
	"pegasus/vcpu"
)

const (
	lookEvery = 3 * time.Second         // poll interval, without events
	settle    = 10 * time.Millisecond   // several events come at once
	retry     = time.Second             // of failed connections
	twice     = 1500 * time.Millisecond // a reboot is reported twice
	alive     = 5                       // keepalive interval of libvirtd, in seconds,
	aliveMost = 3                       // and how many may be unanswered

	patience = 30 * time.Second // for all calls of libvirt between two waits of the watcher
)

// watcher is the state of one libvirt connection.
type watcher struct {
	uri, regions string
	threads      *report.Threads
	changed      chan struct{} // holds an element when the machines must be listed again
	hung         *time.Timer   // runs during calls of libvirt's library

	mu     sync.Mutex
	resets map[string]reset // by machine
}

// reset is the number of restarts of a machine in the same emulator, and the time of the last one.
type reset struct {
	count uint64
	last  time.Time
}

// watch reports until the output is closed, or until libvirt takes longer than patience: a hung call of its C
// library can only be ended with the process, and the daemon starts another.
func watch(uri, regions string, patience time.Duration, out *json.Encoder) error {
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		out.Encode(report.Report{Away: reason(err)})
		time.Sleep(report.ReportEvery) // the library is loaded once in a process's life
		return errors.New(reason(err))
	}
	go func() {
		for {
			if libvirt.EventRunDefaultImpl() != nil {
				time.Sleep(retry)
			}
		}
	}()
	w := &watcher{uri: uri, regions: filepath.Clean(regions), changed: make(chan struct{}, 1), resets: map[string]reset{}}
	w.threads = newThreads(uri, w.kick)
	w.hung = time.AfterFunc(patience, func() {
		out.Encode(report.Report{Away: fmt.Sprintf("libvirtd hasn't answered within %v", patience)})
		os.Exit(0)
	})
	for {
		w.hung.Reset(patience)
		err := w.session(out, patience)
		w.hung.Stop()
		if err := out.Encode(report.Report{Away: reason(err)}); err != nil {
			return err
		}
		time.Sleep(retry)
	}
}

// reason returns the error in libvirt's words.
func reason(err error) string {
	var v libvirt.Error
	if !errors.As(err, &v) {
		return err.Error()
	}
	if strings.Contains(v.Message, "libvirt.so") {
		return "libvirt isn't installed (Debian: libvirt0)"
	}
	return v.Message
}

func (w *watcher) kick() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// session watches one connection.
func (w *watcher) session(out *json.Encoder, patience time.Duration) error {
	c, err := libvirt.NewConnect(w.uri)
	if err != nil {
		return err
	}
	defer c.Close()
	closed := make(chan struct{})
	var once sync.Once
	if err := c.RegisterCloseCallback(func(*libvirt.Connect, libvirt.ConnectCloseReason) { once.Do(func() { close(closed) }) }); err != nil {
		return err
	}
	defer c.UnregisterCloseCallback()
	if err := c.SetKeepAlive(alive, aliveMost); err != nil {
		return err
	}
	unregister, err := w.register(c)
	defer unregister()
	if err != nil {
		return err
	}
	w.threads.Forget(nil) // libvirtd may restart the numbering of its machines
	var said report.Report
	var last time.Time
	for {
		r, err := w.look(c)
		if err != nil {
			return err
		}
		if time.Since(last) > report.ReportEvery-lookEvery || !reflect.DeepEqual(said, r) {
			if err := out.Encode(r); err != nil {
				return err
			}
			said, last = r, time.Now()
		}
		w.hung.Stop()
		select {
		case <-closed:
			err = errors.New("libvirtd hung up")
		case <-time.After(lookEvery):
		case <-w.changed:
			time.Sleep(settle)
		}
		w.hung.Reset(patience)
		if err != nil {
			return err
		}
	}
}

// register subscribes to events. An event only triggers a new listing, except for restarts in the same
// emulator, which only the event shows. A connection lasts, with its open resources, until the last
// registration is undone, even after Close.
func (w *watcher) register(c *libvirt.Connect) (undo func(), err error) {
	var ids []int
	undo = func() {
		for _, id := range ids {
			c.DomainEventDeregister(id)
		}
	}
	id, err := c.DomainEventLifecycleRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain, e *libvirt.DomainEventLifecycle) {
		if reverted(e) {
			w.reset(d)
		}
		w.kick()
	})
	if err != nil {
		return undo, err
	}
	ids = append(ids, id)
	id, err = c.DomainEventRebootRegister(nil, func(_ *libvirt.Connect, d *libvirt.Domain) {
		w.reset(d)
		w.kick()
	})
	if err == nil {
		ids = append(ids, id)
	}
	return undo, err
}

// reverted reports whether the event gave a machine the memory of a snapshot.
func reverted(e *libvirt.DomainEventLifecycle) bool {
	switch e.Event {
	case libvirt.DOMAIN_EVENT_STARTED:
		return libvirt.DomainEventStartedDetailType(e.Detail) == libvirt.DOMAIN_EVENT_STARTED_FROM_SNAPSHOT
	case libvirt.DOMAIN_EVENT_RESUMED:
		return libvirt.DomainEventResumedDetailType(e.Detail) == libvirt.DOMAIN_EVENT_RESUMED_FROM_SNAPSHOT
	case libvirt.DOMAIN_EVENT_SUSPENDED:
		return libvirt.DomainEventSuspendedDetailType(e.Detail) == libvirt.DOMAIN_EVENT_SUSPENDED_FROM_SNAPSHOT
	}
	return false
}

func (w *watcher) reset(d *libvirt.Domain) {
	name, err := d.GetName()
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.resets[name]
	if now := time.Now(); now.Sub(r.last) > twice {
		w.resets[name] = reset{r.count + 1, now}
	}
}

// look lists all machines. An uncertain result is no report: a dying libvirtd must not be mistaken for one
// that has lost its machines.
func (w *watcher) look(c *libvirt.Connect) (report.Report, error) {
	domains, err := c.ListAllDomains(0)
	if err != nil {
		return report.Report{}, err
	}
	defer func() {
		for i := range domains {
			domains[i].Free()
		}
	}()
	var r report.Report
	for i := range domains {
		m, err := w.machine(&domains[i])
		switch {
		case errors.Is(err, libvirt.ERR_NO_DOMAIN) || errors.Is(err, errOther):
		case err != nil:
			return report.Report{}, err
		default:
			r.Machines = append(r.Machines, m)
		}
	}
	w.threads.Forget(r.Machines)
	return r, nil
}

var errOther = errors.New("not one of ours")

// machine describes an attached machine.
func (w *watcher) machine(d *libvirt.Domain) (m report.Machine, err error) {
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return m, err
	}
	definition, err := kvm.Parse([]byte(text))
	if err != nil {
		return m, errOther
	}
	path, _, ok := definition.Region(w.regions)
	if !ok || path != filepath.Join(w.regions, definition.Name) || configs.CheckName(definition.Name) != nil {
		return m, errOther
	}
	info, err := d.GetInfo()
	if err != nil {
		return m, err
	}
	m = report.Machine{Name: definition.Name, State: stateOf(info.State), Credits: creditsOf(d, definition)}
	if m.State == hypervisor.MachineOff {
		return m, nil
	}
	id, err := d.GetID()
	if err != nil { // it has ended meanwhile
		m.State = hypervisor.MachineOff
		return m, nil
	}
	w.mu.Lock()
	m.Resets = w.resets[m.Name].count
	w.mu.Unlock()
	m.Started = uint64(id)
	m.PID, m.VCPUs = w.threads.Of(report.MachineRun{Name: m.Name, ID: id, VCPUs: int(info.NrVirtCpu), State: m.State})
	return m, nil
}

// creditsOf returns the credits in the definition that applies from the machine's next start on, so that they
// can change while it runs. A transient machine has no other definition.
func creditsOf(d *libvirt.Domain, running *kvm.Definition) vcpu.Credits {
	text, err := d.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE)
	if err != nil {
		return running.Credits()
	}
	next, err := kvm.Parse([]byte(text))
	if err != nil {
		return running.Credits()
	}
	return next.Credits()
}

func stateOf(s libvirt.DomainState) hypervisor.MachineState {
	switch s {
	case libvirt.DOMAIN_SHUTOFF, libvirt.DOMAIN_CRASHED, libvirt.DOMAIN_NOSTATE:
		return hypervisor.MachineOff
	case libvirt.DOMAIN_PAUSED, libvirt.DOMAIN_PMSUSPENDED:
		return hypervisor.MachinePaused
	}
	return hypervisor.MachineRunning
}
