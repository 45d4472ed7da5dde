// Package libvirt provides libvirt's machines to the daemon: which are attached, whether they run, and which threads
// their vCPUs are.
//
// A separate program, pegasus-libvirt, connects to libvirt, since that requires libvirt's C library: the daemon doesn't
// link the library, and a host without it lacks only libvirt's machines. One process of the program runs for each of
// libvirt's URIs; it writes its reports as lines of JSON.
//
// Callers: the daemon.
//
// Trust boundary: libvirt is trusted; pegasus-libvirt's reports are checked for bounds and consistency.
package libvirt

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"pegasus/hypervisor"
)

// Machines are the machines of several libvirts. It implements hypervisor.Machines.
type Machines struct {
	URIs []string
	// Command returns the command that reports the machines of one: it ends when its standard input does.
	Command func(uri string) []string
	Log     *slog.Logger

	silent time.Duration // set by tests, instead of silentTime
}

// startAgain is the pause before a program that ended is started again.
const startAgain = 2 * time.Second

// A program reports at least every ReportEvery, also when nothing has changed. A program without a report for
// silentTime, because it hangs or is stopped, is killed; so is one that hasn't ended endTime after its standard input
// did.
const (
	ReportEvery = 10 * time.Second
	silentTime  = time.Minute
	endTime     = 5 * time.Second
)

// heard is a report of one libvirt.
type heard struct {
	uri    string
	anew   bool // from a program that has only just begun to count resets
	report Report
}

// Watch implements hypervisor.Machines.
func (m Machines) Watch(ctx context.Context, notify func([]hypervisor.Machine)) {
	reports, ended := make(chan heard), make(chan struct{})
	for _, uri := range m.URIs {
		go func() {
			m.follow(ctx, uri, reports)
			ended <- struct{}{}
		}()
	}
	b := newBook(m.URIs)
	for left := len(m.URIs); left > 0; {
		select {
		case h := <-reports:
			if all, changed := b.enter(h); changed {
				notify(all)
			}
		case <-ended:
			left--
		}
	}
}

// follow keeps a program running that reports one libvirt's machines.
func (m Machines) follow(ctx context.Context, uri string, reports chan<- heard) {
	log := m.Log.With("libvirt", uri)
	said := "" // the last logged reason, which isn't repeated
	for ctx.Err() == nil {
		if why := m.run(ctx, uri, reports, log, &said); why != "" && why != said && ctx.Err() == nil {
			said = why
			log.Warn("libvirt can't be watched", "why", why)
		}
		select {
		case <-time.After(startAgain):
		case <-ctx.Done():
		}
	}
}

// run starts the program and forwards its reports until it ends.
func (m Machines) run(ctx context.Context, uri string, reports chan<- heard, log *slog.Logger, said *string) (why string) {
	command := m.Command(uri)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	errs := &complaints{log: log}
	cmd.Stderr = errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return err.Error()
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err.Error()
	}
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
	defer stop()
	patience := cmp.Or(m.silent, silentTime)
	var silent atomic.Bool
	hung := time.AfterFunc(patience, func() { silent.Store(true); cmd.Process.Kill() })
	err = m.listen(ctx, uri, out, reports, log, said, func() { hung.Reset(patience) })
	hung.Stop()
	in.Close()
	out.Close()
	cmd.WaitDelay = time.Second // for its own child processes
	kill := time.AfterFunc(min(patience, endTime), func() { cmd.Process.Kill() })
	end := cmd.Wait()
	kill.Stop()
	if silent.Load() {
		err = fmt.Errorf("%s reported nothing for %v and was killed", command[0], patience)
	} else if err == nil {
		err = end
	}
	if err != nil {
		return strings.TrimSpace(err.Error() + " " + errs.last)
	}
	return ""
}

// complaints logs the program's standard error.
type complaints struct {
	log  *slog.Logger
	last string
}

func (c *complaints) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line != c.last {
			c.log.Warn("output of pegasus-libvirt", "text", line)
			c.last = line
		}
	}
	return len(b), nil
}

func (m Machines) listen(ctx context.Context, uri string, out io.Reader, reports chan<- heard, log *slog.Logger, said *string, reported func()) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for anew := true; lines.Scan(); {
		reported()
		r, err := ParseReport(lines.Bytes())
		if err != nil {
			return err
		}
		if r.Away != *said {
			if *said = r.Away; r.Away != "" {
				log.Warn("libvirt is away: its machines are taken to be as they were", "why", r.Away)
			} else {
				log.Info("libvirt reports machines", "machines", len(r.Machines))
			}
		}
		if r.Away != "" {
			continue
		}
		select {
		case reports <- heard{uri, anew, r}:
		case <-ctx.Done():
			return nil
		}
		anew = false
	}
	return lines.Err()
}

// book is the state of all machines.
type book struct {
	uris         []string
	last         map[string]Report // by URI
	known        map[string]entry  // by URI and name
	boots        uint64
	lastReported []hypervisor.Machine
	first        bool // nothing was reported yet
}

// entry is a machine as last reported.
type entry struct {
	boot, started, resets uint64
	pid                   int // 0: unknown
}

func newBook(uris []string) *book {
	return &book{uris: uris, last: map[string]Report{}, known: map[string]entry{}, first: true}
}

// enter applies a report, and returns the machines of all reports if they have changed.
func (b *book) enter(h heard) ([]hypervisor.Machine, bool) {
	for _, m := range h.report.Machines {
		b.number(h, m)
	}
	b.last[h.uri] = h.report
	// A domain is one machine's: a running one, if there is one, of the libvirt named first.
	var all []hypervisor.Machine
	seen := map[string]bool{}
	for _, off := range []bool{false, true} {
		for _, uri := range b.uris {
			for _, m := range b.last[uri].Machines {
				if seen[m.Name] || off != (m.State == hypervisor.MachineOff) {
					continue
				}
				seen[m.Name] = true
				all = append(all, hypervisor.Machine{Domain: m.Name, Host: uri, State: m.State, PID: m.PID, VCPUs: slices.Clone(m.VCPUs), Credits: m.Credits,
					Boot: b.boot(uri, m)})
			}
		}
	}
	slices.SortFunc(all, func(x, y hypervisor.Machine) int { return strings.Compare(x.Domain, y.Domain) })
	if !b.first && slices.EqualFunc(all, b.lastReported, same) {
		return nil, false
	}
	b.lastReported, b.first = all, false
	return all, true
}

func same(x, y hypervisor.Machine) bool {
	threads := slices.Equal(x.VCPUs, y.VCPUs)
	x.VCPUs, y.VCPUs = nil, nil
	return threads && x.Domain == y.Domain && x.Host == y.Host && x.State == y.State && x.Boot == y.Boot && x.PID == y.PID && x.Credits == y.Credits
}

func key(uri, name string) string { return uri + " " + name }

// number gives a restarted machine another boot number. A program that has just begun to watch counts resets from 0:
// that is no restart.
func (b *book) number(h heard, m Machine) {
	k := key(h.uri, m.Name)
	was, ok := b.known[k]
	if m.State == hypervisor.MachineOff {
		delete(b.known, k)
		return
	}
	next := entry{was.boot, m.Started, m.Resets, cmp.Or(m.PID, was.pid)}
	if !ok || was.started != m.Started || was.pid != 0 && was.pid != next.pid || !h.anew && was.resets != m.Resets {
		b.boots++
		next.boot = b.boots
	}
	b.known[k] = next
}

func (b *book) boot(uri string, m Machine) uint64 {
	if m.State == hypervisor.MachineOff {
		return 0
	}
	return b.known[key(uri, m.Name)].boot
}
