//go:build soak

package xen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pegasus/test/events"
)

// Nothing adds up: after many programs, agents, hubs, attachments and domUs there are as many processes, files, mappings,
// pages in use by Xen's count, and event channels as before.
func TestSoakXenLeaks(t *testing.T) {
	s := set(t, events.Script{Machines: []events.Machine{{Name: "one", Credits: 256}, {Name: "two", Credits: 256, More: unkept}}})
	for _, act := range []struct {
		what  string
		times int
		do    string // in Dom0
	}{
		{"hubs are killed", 12, `kill -9 $(ours "hub .*--domain one "); sleep 1.5`},
		{"workers are killed", 12, `kill -9 $(ours "pegasusd worker one"); sleep 1.5`},
		{"it is detached and attached", 12, "pegasus detach one; usleep 700000; pegasus attach one; sleep 1"},
		{"daemons are killed", 6, "kill_daemon; start_daemon; sleep 4"},
		{"it is saved and goes on", 4, "xl save -c one /tmp/save && rm /tmp/save"},
		{"it is restored", 4, "xl save one /tmp/save && xl restore /tmp/save && rm /tmp/save"},
		{"it is destroyed and created", 5, "xl destroy one; xl create -q /tmp/one/config; sleep 5"},
	} {
		for range act.times {
			s.Run(act.do)
		}
		s.checkUsual(act.what)
	}
	for i, order := range []string{"/bin/witness many >/dev/null 2>&1 & sleep 0.$((RANDOM % 10)); kill -9 $!", "kill -9 $(agent); sleep 0.7"} {
		for _, name := range s.script.Names() {
			s.findConsole(name)
			s.sendOrder(name, "i=0; while [ $i -lt 40 ]; do "+order+"; i=$((i+1)); done; echo all of "+fmt.Sprint(i))
		}
		for _, name := range s.script.Names() {
			s.Await(5*time.Minute, name+" has done it all", func() bool { return strings.Contains(s.tail(name), fmt.Sprintf("\nall of %d\n", i)) })
		}
		s.checkUsual(order)
	}
}

// checkUsual blocks until all domUs compute and the inventory is the usual one.
func (s *stage) checkUsual(after string) {
	s.t.Helper()
	began := time.Now()
	for _, name := range s.script.Names() {
		mark := s.length(name)
		s.Await(takenTime, name+" computes after "+after, func() bool { return s.said(name, mark).Right > 0 })
	}
	s.checkLeft(events.Event{What: after, Whom: events.ToHost, Then: events.GoesOn})
	for _, name := range s.script.Names() {
		if r := s.said(name, 0); r.Wrong != "" {
			s.t.Fatalf("%s: %s", name, r.Wrong)
		}
	}
	s.t.Logf("%s: all is as usual after %.1f s", after, time.Since(began).Seconds())
}
