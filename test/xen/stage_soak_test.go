//go:build soak

package xen

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/test/events"
)

// A stage plays a script on domUs. In each domU a program computes all the time and checks its
// results.
type stage struct {
	*Host
	script events.Script
	orders int
	usual  string // the inventory while no event happens
}

// stageConfig leaves one of the emulated processors to domUs and Xen's tools, and gives processes little memory: Xen prints
// a line for each page that is in use.
const stageConfig = daemonConfig + "cores = 1\n[default_domain]\narena = \"1MiB\"\n"

// takenTime bounds the time in which a program takes an event, on an emulated machine that others use, too,
// and leftTime the time until nothing is left of the event.
const (
	takenTime = 180 * time.Second
	leftTime  = 120 * time.Second
)

// unkept is a domU without a process that keeps an agent's files for the next agent.
const unkept = "unkept"

// witnessing is a domU's job. Its parameter is the command that starts the agent. The job also executes commands
// from the domU's console. Each line there has a number and a command.
const witnessing = `
exec </dev/hvc0
stty -echo
boot=$(cut -c -8 /proc/sys/kernel/random/boot_id)
printf '\nboot %%s\n' $boot
pegasus-guest install >/dev/null
%s &
served() { until pegasus-guest doctor | grep -q "^ok *host"; do sleep 0.2; done; }
agent() { for p in $(pidof pegasus-guest); do grep -q agent /proc/$p/cmdline && echo $p; done; }
(while :; do served; /bin/witness $boot; echo "ended $?"; done) &
while :; do
	while read -r n order; do
		[ "${n:-$last}" != "$last" ] || continue
		last=$n
		echo "told $n"
		eval "$order"
	done
	sleep 0.1
done
`

const (
	keptAgent   = "probe keep pegasus-guest agent"
	unkeptAgent = "(while :; do pegasus-guest agent; sleep 0.1; done)"
)

// inDom0 defines the functions of Dom0's shell that the tests call.
const inDom0 = `
start_daemon() { pegasusd --config /tmp/pegasus.toml >>/tmp/pegasusd.log 2>&1 & echo $! >/tmp/pegasusd.pid; }
kill_daemon() { kill -9 $(cat /tmp/pegasusd.pid); }
ours() { ps -o pid,args | grep "$1" | grep -v grep | while read -r pid args; do echo $pid; done; }
xenstored() { kill -$1 $(cat /run/xenstored.pid); }
`

// set starts a script's domUs, and waits until all is as usual.
func set(t *testing.T, sc events.Script) *stage {
	t.Helper()
	s := &stage{Host: Start(t, "conring_size=1M"), script: sc}
	s.Run(inDom0 + "xl sched-credit -d 0 -w 1024")
	startDaemon(t, s.Host, stageConfig)
	for _, m := range sc.Machines {
		agent := keptAgent
		if m.More == unkept {
			agent = unkeptAgent
		}
		s.Run("pegasus attach " + m.Name)
		s.Create(m.Name, fmt.Sprintf(witnessing, agent), fmt.Sprintf("cpu_weight=%d", m.Credits))
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s says:\n%s", m.Name, s.tail(m.Name))
			}
		})
	}
	for _, name := range sc.Names() {
		s.Await(takenTime, name+" computes", func() bool { return s.said(name, 0).Program != "" })
	}
	s.Await(leftTime, "what there is stays the same", func() bool {
		was := s.usual
		time.Sleep(2 * time.Second)
		s.usual = s.Run("probe left")
		return was == s.usual
	})
	t.Logf("there is:\n%s", s.usual)
	return s
}

func consoleOf(name string) string { return "/var/log/xen/console/guest-" + name + ".log" }

// said returns the report of a domU's witnesses from its output behind the first since bytes.
func (s *stage) said(name string, since int) events.Report {
	s.t.Helper()
	return events.ParseReport(s.Run(fmt.Sprintf("tail -c +%d %s | tr -d '\\r'", since+1, consoleOf(name))) + "\n")
}

// length returns the length of a domU's output in bytes.
func (s *stage) length(name string) int {
	s.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s.Run("wc -c <" + consoleOf(name))))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) tail(name string) string {
	out, _ := s.Try("tail -c 5000 " + consoleOf(name) + " | tr -d '\\r'")
	return out
}

// sendOrder sends a shell command to a domU, and blocks until the domU has executed it. The console can lose a command
// while the job isn't reading it, so the function repeats the command.
func (s *stage) sendOrder(name, command string) {
	s.t.Helper()
	s.orders++
	printed := regexp.MustCompile(fmt.Sprintf("(?m)^told %d$", s.orders))
	s.Await(takenTime, name+" hears "+command, func() bool {
		s.Run(fmt.Sprintf("echo '%d %s' >$(cat /tmp/%s/tty)", s.orders, command, name))
		for range 5 {
			if printed.MatchString(s.tail(name)) {
				return true
			}
			time.Sleep(100 * time.Millisecond)
		}
		return false
	})
}

// findConsole stores the path of a domU's console, because XenStore may be away when a command is to be sent.
func (s *stage) findConsole(name string) {
	s.t.Helper()
	s.Run("xenstore-read /local/domain/$(xl domid " + name + ")/console/tty >/tmp/" + name + "/tty")
}

// playAll plays the script. If something fails it is printed up to there, to be played again.
func (s *stage) playAll() {
	t := s.t
	played := events.Script{Machines: s.script.Machines}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("this was played, of which the last failed:\n%v", played)
		}
	})
	for _, e := range s.script.Events {
		played.Events = append(played.Events, e)
		s.play(e)
	}
	for _, name := range s.script.Names() {
		s.Run("xl destroy " + name)
	}
	s.Await(leftTime, "nothing is left", func() bool {
		left := s.Run("probe left")
		return !strings.Contains(left, "domU") && !strings.Contains(left, "hub") && !strings.Contains(left, "worker") && strings.Contains(left, "\ndomain: 1\n") && !strings.Contains(left, "granted")
	})
}

// play causes an event, and checks that all programs take it as the script requires.
func (s *stage) play(e events.Event) {
	s.t.Helper()
	before, marks := map[string]events.Report{}, map[string]int{}
	for _, name := range s.script.Names() {
		before[name], marks[name] = events.ParseReport(s.tail(name)+"\n"), s.length(name)
		s.findConsole(name)
	}
	began := time.Now()
	d, _ := findScriptEvent(e.What)
	d.do(s, e.Whom)
	done := time.Since(began)
	after := map[string]events.Report{}
	for _, name := range s.script.Names() {
		then := events.GoesOn
		if name == e.Whom {
			then = e.Then
		}
		atFirst := s.said(name, marks[name])
		s.Await(takenTime, fmt.Sprintf("line %d, %q: %s %s", e.Line, e, name, then), func() bool {
			after[name] = s.said(name, marks[name])
			ok, err := events.Taken(then, before[name], atFirst, after[name])
			if err != nil {
				s.t.Fatalf("line %d, %q: %s: %v", e.Line, e, name, err)
			}
			return ok
		})
	}
	taken := time.Since(began)
	s.checkLeft(e)
	for name, was := range after {
		if now := s.said(name, marks[name]); now.Wrong != "" || now.Program != was.Program || len(now.Ended) != len(was.Ended) {
			s.t.Fatalf("line %d, %q: %s: its program took it, but didn't go on for long:\n%s", e.Line, e, name, now.Text)
		}
	}
	s.t.Logf("%-71s happened within %4.1f s, was taken within %4.1f s", e, done.Seconds(), taken.Seconds())
}

// checkLeft checks that the inventory is the usual one again.
func (s *stage) checkLeft(e events.Event) {
	s.t.Helper()
	var left string
	for end := time.Now().Add(leftTime); ; time.Sleep(300 * time.Millisecond) {
		if left = s.Run("probe left"); left == s.usual {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("line %d, %q: there is\n%s\nwhere there was\n%s", e.Line, e, left, s.usual)
		}
	}
}
