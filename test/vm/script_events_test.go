package vm

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pegasus/backend/control"
	"pegasus/hypervisor/kvm"
)

// scriptEvent is an event that a script can cause, in a machine or on the host. do returns when the event is over.
type scriptEvent struct {
	onHost bool // to the host
	virsh  bool // libvirtd has to be there
	lonely bool // not while daemon or libvirtd is away
	do     func(s *stage, name string)
}

func byVirsh(do func(s *stage, name string)) scriptEvent   { return scriptEvent{virsh: true, do: do} }
func toMachine(do func(s *stage, name string)) scriptEvent { return scriptEvent{do: do} }
func onHost(do func(s *stage)) scriptEvent {
	return scriptEvent{onHost: true, do: func(s *stage, _ string) { do(s) }}
}

// scriptEvents are the events that a script can have, by name.
var scriptEvents = map[string]scriptEvent{
	"destroy, start": byVirsh((*stage).startAnew),
	"shutdown, start": byVirsh(func(s *stage, name string) {
		s.virsh("shutdown", name, "--mode", "acpi")
		s.awaitState(name, "shut off")
		s.checkOff(name)
		s.virsh("start", name)
	}),
	"kill QEMU, start": byVirsh(func(s *stage, name string) {
		s.kill("qemu-system-x86_64", "guest="+name+",")
		s.awaitState(name, "shut off")
		s.checkOff(name)
		s.virsh("start", name)
	}),
	"reset": byVirsh(func(s *stage, name string) { s.virsh("reset", name) }),
	"pause": byVirsh(func(s *stage, name string) {
		s.virsh("suspend", name)
		s.awaitState(name, "paused")
		time.Sleep(time.Second)
		s.virsh("resume", name)
	}),
	"save, restore": byVirsh(func(s *stage, name string) {
		saved := s.h.path("saved")
		defer os.Remove(saved)
		s.virsh("save", name, saved)
		s.checkOff(name)
		s.virsh("restore", saved)
	}),
	"managedsave, start": byVirsh(func(s *stage, name string) {
		s.virsh("managedsave", name)
		s.checkOff(name)
		s.virsh("start", name)
	}),

	"reboot inside": toMachine(func(s *stage, name string) { s.sendOrder(name, "reboot -f") }),
	"panic inside":  toMachine(func(s *stage, name string) { s.sendOrder(name, "echo c >/proc/sysrq-trigger") }),
	"kill agent":    toMachine(func(s *stage, name string) { s.sendOrder(name, "kill -9 $(pidof pegasus-guest)") }),
	"kill program":  toMachine(func(s *stage, name string) { s.sendOrder(name, "kill -9 $(pidof witness)") }),
	"kill hub":      toMachine(func(s *stage, name string) { s.kill("pegasusd", "\x00hub\x00", filepath.Join(s.h.regions, name)) }),
	"kill worker":   toMachine(func(s *stage, name string) { s.kill("pegasusd", "pegasusd worker "+name) }),

	"kill daemon": onHost(func(s *stage) {
		s.killDaemon()
		time.Sleep(1500 * time.Millisecond) // until gates are open
		s.h.start()
	}),
	"restart daemon": onHost(func(s *stage) {
		s.h.stop()
		s.h.start()
	}),
	"kill libvirtd": onHost(func(s *stage) {
		s.l.end(syscall.SIGKILL)
		for _, name := range s.script.Names() {
			if !s.computes(name) {
				s.Fatalf("%s doesn't go on without libvirtd", name)
			}
		}
		s.l.again()
	}),
	// Rare ones.
	"pause, new daemon": {virsh: true, lonely: true, do: func(s *stage, name string) {
		s.virsh("suspend", name)
		s.killDaemon()
		s.h.start()
		eventually(s, soon, "the next daemon finds it paused", func() bool { return s.h.domain(name).State == "paused" })
		s.virsh("resume", name)
	}},
	"kill agent and hub": toMachine(func(s *stage, name string) {
		s.sendOrder(name, "kill -9 $(pidof pegasus-guest)")
		s.kill("pegasusd", "\x00hub\x00", filepath.Join(s.h.regions, name))
	}),
	"start twice": byVirsh(func(s *stage, name string) {
		s.startAnew(name)
		time.Sleep(s.within)
		s.startAnew(name)
	}),
	"reset twice": byVirsh(func(s *stage, name string) {
		s.virsh("reset", name)
		time.Sleep(s.within)
		s.virsh("reset", name)
	}),
	"save paused, restore": byVirsh(func(s *stage, name string) {
		saved := s.h.path("saved")
		defer os.Remove(saved)
		s.virsh("save", name, saved, "--paused")
		s.checkOff(name)
		s.virsh("restore", saved, "--running")
	}),
	"kill daemon twice": onHost(func(s *stage) {
		s.killDaemon()
		s.h.start()
		time.Sleep(s.within)
		s.killDaemon()
		s.h.start()
	}),

	"kill pegasus-libvirt": onHost(func(s *stage) { s.kill("pegasus-libvirt") }),
}

// An event of a machine can happen while another component is away, which was killed just before the event and
// comes back just after it.
const (
	withoutDaemon   = " without daemon"
	withoutLibvirtd = " without libvirtd"
)

// away splits an event's name into the event and the component that is away meanwhile.
func away(what string) (plain, who string) {
	for _, who := range []string{withoutDaemon, withoutLibvirtd} {
		if plain, ok := strings.CutSuffix(what, who); ok {
			return plain, who
		}
	}
	return what, ""
}

// findScriptEvent returns the event that a script names. An event twice has the time between its occurrences: "reset
// twice in 3s".
func findScriptEvent(what string) (d scriptEvent, ok bool) {
	plain, who := away(what)
	plain, length, timed := strings.Cut(plain, " in ")
	within, err := time.ParseDuration(length)
	d, ok = scriptEvents[plain]
	if ok = ok && timed == strings.HasSuffix(plain, " twice") && (err == nil) == timed; ok {
		do := d.do
		d.do = func(s *stage, name string) {
			s.within = within
			do(s, name)
		}
	}
	do := d.do
	switch {
	case who == "":
		return d, ok
	case d.onHost, d.lonely, who == withoutLibvirtd && d.virsh:
		return d, false
	case who == withoutDaemon:
		d.do = func(s *stage, name string) {
			s.killDaemon()
			do(s, name)
			time.Sleep(time.Second)
			s.h.start()
		}
	default:
		d.do = func(s *stage, name string) {
			s.l.end(syscall.SIGKILL)
			do(s, name)
			time.Sleep(time.Second)
			s.l.again()
		}
	}
	return d, ok
}

// killDaemon kills the daemon, and blocks until it has ended.
func (s *stage) killDaemon() {
	s.h.daemon.Process.Kill()
	s.h.daemon.Wait()
	s.h.daemon = nil
}

// startAnew cuts a machine's power, and starts it again.
func (s *stage) startAnew(name string) {
	s.virsh("destroy", name)
	s.checkOff(name)
	s.virsh("start", name)
}

// virsh runs a command of virsh.
func (s *stage) virsh(args ...string) {
	s.Helper()
	s.l.run(append([]string{"virsh"}, args...)...)
}

// kill kills the stage's only process of a program.
func (s *stage) kill(program string, parts ...string) {
	s.Helper()
	var found []process
next:
	for _, p := range s.processes() {
		for _, part := range append(parts, program) {
			if !strings.Contains(p.command+"\x00"+p.program, part) {
				continue next
			}
		}
		found = append(found, p)
	}
	if len(found) != 1 {
		s.Fatalf("%d processes are %s %q", len(found), program, parts)
	}
	syscall.Kill(found[0].pid, syscall.SIGKILL)
}

// awaitState blocks until libvirt reports a state of a machine.
func (s *stage) awaitState(name, state string) {
	s.Helper()
	eventually(s, bootTime, name+" is "+state, func() bool {
		out, err := s.l.command("virsh", "domstate", name).Output()
		return err == nil && strings.TrimSpace(string(out)) == state
	})
}

// checkOff checks that nothing is left of a machine that is off.
func (s *stage) checkOff(name string) {
	s.Helper()
	region := filepath.Join(s.h.regions, name)
	eventually(s, soon, "nothing is left of a machine that is off", func() bool {
		var d control.Domain
		if s.h.daemon != nil {
			d = s.h.domain(name)
		}
		_, noRegion := os.Lstat(region)
		_, noPort := os.Lstat(kvm.PortPath(region))
		return d.Processes == 0 && d.Memory == 0 && noRegion != nil && noPort != nil
	})
}
