//go:build soak

package xen

import (
	"strings"
	"time"
)

// scriptEvent is an event that a script can cause, in a domU or on the host. do returns when the event is over.
type scriptEvent struct {
	onHost bool // to the host
	xl     bool // Xen's tools do it, which need XenStore
	do     func(s *stage, name string)
}

func inside(command string) scriptEvent {
	return scriptEvent{do: func(s *stage, name string) { s.sendOrder(name, command) }}
}

func onHost(commands string) scriptEvent {
	return scriptEvent{onHost: true, do: func(s *stage, _ string) { s.Run(commands) }}
}

// byDom0 are commands of Dom0's shell, with the domU's name for NAME.
func byDom0(commands string) scriptEvent {
	return scriptEvent{do: func(s *stage, name string) { s.Run(strings.ReplaceAll(commands, "NAME", name)) }}
}

// byXL are the same with Xen's tools.
func byXL(commands string) scriptEvent {
	d := byDom0(commands)
	d.xl = true
	return d
}

const killHub = `kill -9 $(ours "hub .*--domain NAME ")`

// scriptEvents are the events that a script can have, by name.
var scriptEvents = map[string]scriptEvent{
	"kill program": inside("kill -9 $(pidof witness)"),
	"kill agent":   inside("kill -9 $(agent)"),
	"end agent":    inside("kill $(agent)"),
	"kill hub":     byDom0(killHub),
	"kill worker":  byDom0(`kill -9 $(ours "pegasusd worker NAME")`),
	"kill agent and hub": {do: func(s *stage, name string) {
		s.sendOrder(name, "kill -9 $(agent)")
		s.Run(strings.ReplaceAll(killHub, "NAME", name))
	}},
	"pause":                byXL("xl pause NAME; sleep 2; xl unpause NAME"),
	"pause a minute":       byXL("xl pause NAME; sleep 60; xl unpause NAME"),
	"pause, new daemon":    byXL("xl pause NAME; kill_daemon; start_daemon; sleep 5; xl unpause NAME"),
	"destroy, create":      byXL("xl destroy NAME; xl create -q /tmp/NAME/config"),
	"save, restore":        byXL("xl save NAME /tmp/save && xl restore /tmp/save && rm /tmp/save"),
	"save, go on":          byXL("xl save -c NAME /tmp/save && rm /tmp/save"),
	"save, restore paused": byXL("xl save NAME /tmp/save && xl restore -p /tmp/save && rm /tmp/save && sleep 1 && xl unpause NAME"),
	"rename twice":         byXL("xl rename NAME other; sleep 1; xl rename other NAME"),
	"detach, attach":       byDom0("pegasus detach NAME; sleep 1; pegasus attach NAME"),
	"reboot": {xl: true, do: func(s *stage, name string) {
		id := s.Run("xl domid " + name)
		s.Run("xl reboot " + name)
		s.Await(takenTime, name+" is another domain", func() bool {
			if s.unwatched(name) {
				s.Run("xl destroy " + name + "; xl create -q /tmp/" + name + "/config")
			}
			now, status := s.Try("xl domid " + name + " 2>/dev/null")
			return status == 0 && now != id
		})
	}},
	"crash, create": {xl: true, do: func(s *stage, name string) {
		s.sendOrder(name, "echo c >/proc/sysrq-trigger")
		s.Await(takenTime, name+" has gone", func() bool {
			if s.unwatched(name) {
				s.Run("xl destroy " + name)
			}
			return s.Run("xl list | grep -c '^"+name+" '; true") == "0"
		})
		s.Run("xl create -q /tmp/" + name + "/config")
	}},

	"kill daemon":                onHost("kill_daemon; sleep 2; start_daemon"),
	"restart daemon":             onHost("kill $(cat /tmp/pegasusd.pid); sleep 2; start_daemon"),
	"stop XenStore":              onHost("xenstored STOP; sleep 8; xenstored CONT"),
	"stop XenStore, kill daemon": onHost("xenstored STOP; kill_daemon; start_daemon; sleep 8; xenstored CONT"),
}

// An event of a domU can happen while another component is away, which comes back some seconds after the event.
const (
	withoutDaemon   = " without daemon"
	withoutXenStore = " without XenStore"
)

// unwatched reports whether a domU has stopped while no xl handles that: the xl that has started the domU
// ends when the domU is saved, also if the domU goes on then.
func (s *stage) unwatched(name string) bool {
	_, status := s.Try("xl list " + name + " 2>/dev/null | grep -q -E ' [-rb]{2}[-p][sc]' && tail -n 1 /var/log/xen/xl-" + name + ".log | grep -q 'Exiting now'")
	return status == 0
}

// findScriptEvent returns the event that a script names.
func findScriptEvent(what string) (scriptEvent, bool) {
	who := ""
	for _, w := range []string{withoutDaemon, withoutXenStore} {
		if plain, ok := strings.CutSuffix(what, w); ok {
			what, who = plain, w
		}
	}
	d, ok := scriptEvents[what]
	do := d.do
	switch {
	case who == "" || !ok:
		return d, ok
	case d.onHost || d.xl && who == withoutXenStore:
		return d, false
	case who == withoutDaemon:
		d.do = func(s *stage, name string) {
			s.Run("kill_daemon")
			do(s, name)
			time.Sleep(time.Second)
			s.Run("start_daemon")
		}
	default:
		d.do = func(s *stage, name string) {
			s.Run("xenstored STOP")
			do(s, name)
			time.Sleep(3 * time.Second)
			s.Run("xenstored CONT")
		}
	}
	return d, true
}
