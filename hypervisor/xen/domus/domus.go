// Package domus tells the daemon of Xen's guests, which are called domUs: which of those that are
// attached there are now, under which number, and whether they run.
//
// Three are asked. What is attached stands in files, one for each name, that `pegasus attach`
// writes: Xen's own tools keep no list of definitions. Which number a name has, XenStore says. And
// whether a domU is there and runs, the hypervisor itself does: that is what counts, so a XenStore
// that is slow, or dead, or has forgotten everything takes no machine away.
//
// Who calls it: the daemon in Dom0, and `pegasus attach` for the files. Whom it trusts: the hypervisor,
// XenStore, and root, whose files they are. What a domU may write in XenStore isn't looked at, but for
// whether its agent says that it is there.
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

// CapabilitiesPath is where a kernel under Xen says what it may do.
const CapabilitiesPath = "/proc/xen/capabilities"

// IsDom0 says whether this system controls a Xen host, by what is at CapabilitiesPath.
func IsDom0(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(text), "control_d")
}

// DomUs are a host's.
type DomUs struct {
	Files Files
	Dial  xenstore.Dialer
	// List is what the hypervisor has.
	List func() ([]control.Domain, error)
	// Served are the domUs that are served already, since a daemon before, and by which names: what they are called
	// if XenStore has forgotten them, and who is meant by a name that several have. It may be nil.
	Served func() map[uint16]string
	Log    *slog.Logger

	mu   sync.Mutex
	told map[string]hypervisor.Machine
	here map[uint16]bool // whose agent says that it is there
}

const (
	// lookEvery is how often the hypervisor is asked, and the directory looked at: nothing tells
	// that a domU was paused.
	lookEvery = 500 * time.Millisecond
	// readEvery is how often all is read again, whatever was missed.
	readEvery = 3 * time.Second
)

// Watch fulfils hypervisor.Machines. Nothing is told before XenStore has answered once: a machine
// of which nothing is known isn't off.
func (d *DomUs) Watch(ctx context.Context, tell func([]hypervisor.Machine)) {
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
			tell(all)
		}
	}
}

func (d *DomUs) changed(all []hypervisor.Machine) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !reflect.DeepEqual(byName(all), d.told)
}

func (d *DomUs) note(all []hypervisor.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = byName(all)
}

func byName(all []hypervisor.Machine) map[string]hypervisor.Machine {
	m := make(map[string]hypervisor.Machine, len(all))
	for _, a := range all {
		m[a.Domain] = a
	}
	return m
}

// ID is the number that an attached domU has now, if there is one.
func (d *DomUs) ID(name string) (id uint16, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.told[name]
	return m.Xen, m.Xen != 0
}

// Agent says whether a domU's agent is there, by what that itself says.
func (d *DomUs) Agent(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.told[name]
	return m.Xen != 0 && d.here[m.Xen]
}

// complaint is said when it begins and when it is over, and not again and again.
type complaint struct {
	log        *slog.Logger
	what, over string
	said       bool
}

func (c *complaint) about(err error) {
	switch {
	case err != nil && !c.said:
		c.log.Warn(c.what, "why", err)
	case err == nil && c.said:
		c.log.Info(c.over)
	}
	c.said = err != nil
}
