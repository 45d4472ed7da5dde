package vm

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/test/events"
	"pegasus/test/image"
)

// A stage plays a script on libvirt machines. In each machine a program computes all the time
// and checks its results.
type stage struct {
	*scene
	h        *host
	l        *libvirt
	script   events.Script
	machines map[string]*Running
	orders   int
	within   time.Duration // between the two occurrences of the present event
	usual    inventory     // the inventory while no event happens
	memory   map[string]int
	insides  map[string]string // the usual state inside each machine
}

// A scene is a test with failures that name the latest event.
type scene struct {
	*testing.T
	now string
}

func (s *scene) Errorf(format string, args ...any) {
	s.Helper()
	s.T.Errorf("%s: %s", s.now, fmt.Sprintf(format, args...))
}

func (s *scene) Fatalf(format string, args ...any) {
	s.Helper()
	s.T.Fatalf("%s: %s", s.now, fmt.Sprintf(format, args...))
}

func (s *scene) Fatal(args ...any) {
	s.Helper()
	s.Fatalf("%s", fmt.Sprint(args...))
}

// stageConfig is the host's configuration. One of its processors computes for the accelerator, so that
// machines without hardware virtualization have the other one to boot and to queue work.
const stageConfig = `
[[accelerator]]
name   = "soft0"
type   = "soft"
memory = "256MiB"
cores  = 1
policy = "accc"
tick   = "30ms"
[default_domain]
arena = "16MiB"
`

const stageTick = 30 * time.Millisecond

// witnessing is a machine's job. The job also executes commands from a port of its own. Each line
// there has a number and a command. A press of the power button switches the machine off.
const witnessing = `
boot=$(cut -c -8 /proc/sys/kernel/random/boot_id)
printf '\nboot %s\n' $boot
pegasus-guest install >/dev/ttyS1 2>&1 || exit 8
(while :; do pegasus-guest agent >/dev/ttyS1 2>&1; sleep 0.1; done) &
until [ -e /run/pegasus-guest/region.json ]; do sleep 0.1; done
(while :; do /bin/witness $boot; echo "ended $?"; sleep 0.1; done) &
button=/dev/input/$(basename $(dirname $(dirname $(grep -l Power /sys/class/input/event*/device/name))))
(dd bs=24 count=1 <$button >/dev/null 2>&1; poweroff -f) &
port=/dev/$(basename $(dirname $(grep -l org.pegasus.test /sys/class/virtio-ports/*/name)))
while :; do
	while read -r n order; do
		[ "${n:-$last}" != "$last" ] || continue
		last=$n
		echo "told $n"
		eval "$order"
	done <$port
	sleep 0.1
done
`

// testPort is the virtio port through which a machine receives commands.
const testPort = `<channel type='unix'><source mode='bind' path='%s/orders'/><target type='virtio' name='org.pegasus.test'/></channel>
  </devices>`

// set starts a script's machines, and waits until all is as usual.
func set(t *testing.T, sc events.Script) *stage {
	t.Helper()
	config := stageConfig
	for _, m := range sc.Machines {
		config += fmt.Sprintf("[[domain]]\nname    = %q\ncredits = %d\n", m.Name, m.Credits)
	}
	s := &stage{scene: &scene{t, "at first"}, script: sc, machines: map[string]*Running{}, insides: map[string]string{}}
	s.h = startHost(s.scene, config)
	s.l = startLibvirt(s.h)
	s.l.useInDaemon()
	witness, err := image.Witness(filepath.Dir(filepath.Dir(built(s, "guest/libcuda.so"))))
	if err != nil {
		s.Fatal(err)
	}
	files := map[string]string{"/bin/witness": witness}
	for _, m := range sc.Machines {
		name := m.Name
		s.l.device = m.More
		s.l.edit = func(text string) string {
			text = strings.Replace(text, "<on_reboot>destroy", "<on_reboot>restart", 1)
			return strings.Replace(text, "</devices>", fmt.Sprintf(testPort, s.h.path("machine-"+name)), 1)
		}
		s.machines[name] = s.l.machineOf(name, Machine{Job: witnessing, Files: files})
		s.l.run("virsh", "start", name)
	}
	for _, name := range sc.Names() {
		s.awaits(name, "its program computes", func(r events.Report) bool { return r.Program != "" })
	}
	for name, m := range s.machines {
		if !strings.Contains(m.Messages(), "the host wakes us") || !strings.Contains(s.h.log(), "has a port that wakes\" domain="+name+"\n") {
			s.Errorf("nothing wakes hub or agent of %s", name)
		}
	}
	s.settle()
	for _, name := range sc.Names() {
		s.insides[name] = s.inside(name)
	}
	return s
}

// sendOrder sends a shell command to a machine, and blocks until the machine has executed it. The port can lose
// a command before the job reads from it, so the function sends it again every second.
func (s *stage) sendOrder(name, command string) {
	s.Helper()
	s.orders++
	printed := regexp.MustCompile(fmt.Sprintf("(?m)^told %d$", s.orders))
	for end := time.Now().Add(bootTime); time.Now().Before(end); {
		c, err := net.Dial("unix", s.machines[name].path("orders"))
		if err == nil {
			fmt.Fprintf(c, "\n%d %s\n", s.orders, command)
		}
		for until := time.Now().Add(time.Second); time.Now().Before(until) && err == nil; time.Sleep(20 * time.Millisecond) {
			if printed.MatchString(s.machines[name].Output()) {
				c.Close()
				return
			}
		}
		if err == nil {
			c.Close()
		} else {
			time.Sleep(100 * time.Millisecond)
		}
	}
	s.Fatalf("%s doesn't hear", name)
}

// ask runs a command in a machine and returns the line that the command prints.
func (s *stage) ask(name, command string) (answer string) {
	s.Helper()
	s.sendOrder(name, "echo answer "+fmt.Sprint(s.orders+1)+" $("+command+")")
	printed := regexp.MustCompile(fmt.Sprintf("(?m)^answer %d(.*)\n", s.orders))
	eventually(s, soon, name+" answers", func() bool {
		m := printed.FindStringSubmatch(s.machines[name].Output())
		if m != nil {
			answer = strings.TrimSpace(m[1])
		}
		return m != nil
	})
	return answer
}

// said returns the report of a machine's witnesses from its output behind the first since bytes.
func (s *stage) said(name string, since int) events.Report {
	out := s.machines[name].Output()
	return events.ParseReport(out[min(since, len(out)):])
}

// awaits blocks until ok accepts the report of a machine's witnesses.
func (s *stage) awaits(name, what string, ok func(events.Report) bool) {
	s.Helper()
	eventually(s, bootTime, name+": "+what, func() bool { return ok(s.said(name, 0)) })
}

// computes reports whether a machine's witness goes on.
func (s *stage) computes(name string) bool {
	before := s.said(name, 0)
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if now := s.said(name, 0); now.Program == before.Program && now.Right > before.Right {
			return true
		}
	}
	return false
}

// playAll plays the script. If something fails it is printed up to there, to be played again.
func (s *stage) playAll() {
	played := events.Script{Machines: s.script.Machines}
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("this was played:\n%v", played)
		}
	})
	for _, e := range s.script.Events {
		s.now = fmt.Sprintf("line %d, %q", e.Line, e)
		played.Events = append(played.Events, e)
		s.play(e)
	}
}

// play causes an event, and checks that all programs take it as the script requires.
func (s *stage) play(e events.Event) {
	before, marks := map[string]events.Report{}, map[string]int{}
	for _, name := range s.script.Names() {
		before[name], marks[name] = s.said(name, 0), len(s.machines[name].Output())
	}
	began := time.Now()
	d, _ := findScriptEvent(e.What)
	d.do(s, e.Whom)
	done := time.Since(began)
	for _, name := range s.script.Names() {
		then := events.GoesOn
		if name == e.Whom {
			then = e.Then
		}
		s.checkTaken(name, then, before[name], marks[name])
	}
	taken := time.Since(began)
	after := map[string]events.Report{}
	for _, name := range s.script.Names() {
		after[name] = s.said(name, marks[name])
	}
	time.Sleep(10 * stageTick)
	shares := s.checkShares()
	s.checkInside()
	s.checkLeft()
	for name, was := range after {
		if now := s.said(name, marks[name]); now.Wrong != "" || now.Program != was.Program || len(now.Ended) != len(was.Ended) {
			s.Fatalf("%s: its program took it, but didn't go on for long:\n%s", name, now.Text)
		}
	}
	s.Logf("%-71s happened within %4.1f s, was taken within %4.1f s; %v; %v KiB", e, done.Seconds(), taken.Seconds(), shares, s.resident())
}

// checkTaken checks that a machine's program takes an event as the script requires.
func (s *stage) checkTaken(name, then string, before events.Report, mark int) {
	s.Helper()
	atFirst := s.said(name, mark)
	s.awaits(name, then, func(events.Report) bool {
		ok, err := events.Taken(then, before, atFirst, s.said(name, mark))
		if err != nil {
			s.Fatalf("%s: %v", name, err)
		}
		return ok
	})
}

// Shares are measured for at least shareTime, and for up to shareLimit until they are right: machines
// without hardware virtualization share the processors with the accelerator and with each other, so that a
// machine may now and then have nothing queued, which a longer time evens out. A share that isn't corrected
// soon, or is off all the time, is still off then.
const (
	shareTime      = 2 * time.Second
	shareLimit     = 30 * time.Second
	shareTolerance = 4.0
)

// checkShares checks that machines get shares in proportion to their credits, from now on.
func (s *stage) checkShares() (shares []portion) {
	s.Helper()
	names := s.script.Names()
	before, began := s.h.use(names), time.Now()
	for time.Sleep(shareTime); ; time.Sleep(time.Second) {
		shares = s.h.use(names)
		for i := range shares {
			shares[i].used -= before[i].used
		}
		apportion(shares)
		off := slices.ContainsFunc(shares, func(p portion) bool { return math.Abs(p.off()) > shareTolerance })
		if took := time.Since(began); off && took < shareLimit {
			continue
		} else if off {
			s.Errorf("over %.0f s the shares are %v", took.Seconds(), shares)
		} else if took > shareTime+time.Second {
			s.Logf("shares are right over %.0f s", took.Seconds())
		}
		return shares
	}
}

// inside counts Pegasus's resources in a machine: files of processes on its region, processes
// that its agent has recorded, and the agent's descriptors.
func (s *stage) inside(name string) string {
	s.Helper()
	return s.ask(name, "ls /run/pegasus-guest/region 2>/dev/null | grep -c -e -; grep -o number /run/pegasus-guest/region.json | wc -l; ls /proc/$(pidof pegasus-guest)/fd | wc -l")
}

// checkInside checks that machines have no more of these resources than before the first event.
func (s *stage) checkInside() {
	s.Helper()
	for _, name := range s.script.Names() {
		now := ""
		for end := time.Now().Add(leftTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if now = s.inside(name); now == s.insides[name] {
				break
			}
		}
		if now != s.insides[name] {
			s.Errorf("inside of %s are %s files, processes and descriptors of the agent, and were %s", name, now, s.insides[name])
		}
	}
}
