package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Demonstrate boots two machines of a libvirt of their own, which each demand a whole
// accelerator, and shows that their shares are in proportion to their credits. It returns an
// error if it can't measure the shares, or if they are off.
func Demonstrate(ctx context.Context, out io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("only root can start a libvirt of its own")
	}
	s := &show{ctx: ctx, out: out, began: time.Now()}
	defer func() {
		for _, do := range slices.Backward(s.cleanups) {
			do()
		}
	}()
	defer func() {
		if p := recover(); p != nil && p != errStopped {
			panic(p)
		}
		err = errors.Join(s.errs...)
	}()
	s.run()
	return nil
}

// show is the tester of a demonstration: it prints its progress to out.
type show struct {
	ctx      context.Context
	out      io.Writer
	began    time.Time
	errs     []error
	cleanups []func()
}

// errStopped is the value with which a show panics when it can't go on.
var errStopped = errors.New("stopped")

func (s *show) Helper()          {}
func (s *show) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Failed reports whether logs are to be printed: after an error, but not after an interrupt.
func (s *show) Failed() bool { return len(s.errs) > 0 && s.ctx.Err() == nil }

func (s *show) Logf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *show) Errorf(format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

func (s *show) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	panic(errStopped)
}

func (s *show) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

// say prints a line of progress, with the time since the beginning.
func (s *show) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

const (
	measureTime = 15 * time.Second
	tolerance   = 2.0 // points
)

func (s *show) run() {
	fmt.Fprint(s.out, `Two virtual machines share one accelerator. Machine "three" has three times the credits of machine "one".
Both run BlackScholes without end, so that each wants all of the accelerator, and should get 25 % and 75 %.
The host has a libvirt of its own for this. Its machines are plain: QEMU without hardware virtualisation,
Debian's kernel, no driver; the programs and libcuda.so.1 in them are those of any machine.

`)
	h := startHost(s, twoMachines)
	s.say("the daemon runs, with a software accelerator")
	l := startLibvirt(h)
	s.say("libvirt runs")
	names := []string{"one", "three"}
	for _, name := range names {
		l.machine(name, backlogged)
		s.say("machine %q is defined, and attached (pegasus attach %s)", name, name)
	}
	for _, name := range names {
		l.run("virsh", "start", name)
		s.say("machine %q is started: its kernel boots, its agent makes the shared memory ready", name)
	}
	computing := map[string]bool{}
	eventually(s, bootTime, "both machines compute", func() bool {
		s.watch()
		for _, p := range h.use(names) {
			if p.used > 0 && !computing[p.domain] {
				computing[p.domain] = true
				s.say("machine %q computes on the host's accelerator", p.domain)
			}
		}
		return len(computing) == len(names)
	})
	eventually(s, bootTime, "both machines have begun in earnest", func() bool {
		s.watch()
		return !slices.ContainsFunc(h.use(names), func(p portion) bool { return p.used < begun })
	})
	s.say("measuring for %v", measureTime)
	all := h.portions(measureTime, func(now []portion) {
		s.watch()
		s.say("%v, %v", now[0], now[1])
	}, names...)
	s.report(all)
}

// watch ends the show after an interrupt.
func (s *show) watch() {
	if s.ctx.Err() != nil {
		s.Fatal("interrupted")
	}
}

func (s *show) report(all []portion) {
	fmt.Fprintf(s.out, "\n%-10s %8s %10s %10s %12s\n", "MACHINE", "CREDITS", "SHOULD GET", "GOT", "OFF")
	for _, p := range all {
		fmt.Fprintf(s.out, "%-10s %8d %8.1f %% %8.1f %% %+5.1f points  %s\n", p.domain, p.credits, p.entitled, p.measured, p.off(), strings.Repeat("█", int(p.measured/2+0.5)))
	}
	if off := all[0].off(); off > tolerance || off < -tolerance {
		s.Errorf("the shares are off by more than %g points. A machine without hardware virtualisation needs the host's processors to queue its work, "+
			"and here the accelerator computes on them, too: try again when the host has nothing else to do", tolerance)
		return
	}
	fmt.Fprintf(s.out, "\nThe accelerator's time is shared by credits, within %g points.\n", tolerance)
}
