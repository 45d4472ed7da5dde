package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/backend/gate"
)

func TestPlacement(t *testing.T) {
	h := newHost(t, `
[[accelerator]]
name = "A0"
memory = "64MiB"
max_domains = 2
[[accelerator]]
name = "A1"
memory = "64MiB"
max_domains = 2
[daemon]
undeclared_domains = true
`)
	var guests []*guest
	for _, c := range []struct{ domain, on string }{{"d1", "A0"}, {"d2", "A1"}, {"d3", "A0"}, {"d4", "A1"}} {
		h.hold(c.domain)
		guests = append(guests, h.guest(c.domain))
		if d := h.domain(c.domain); d.Accelerator != c.on {
			t.Errorf("%s is on %q, want %q", c.domain, d.Accelerator, c.on)
		}
	}
	h.hold("d5")
	start := time.Now()
	said := h.knock("d5").hear()
	if took := time.Since(start); !strings.Contains(said, "has 2 domains") || took < 4*time.Second || took > 30*time.Second {
		t.Errorf("a fifth domain hears %q after %v", said, took)
	}
	late := h.knock("d5")
	time.Sleep(100 * time.Millisecond)
	guests[1].kill()
	if said := late.hear(); !strings.HasPrefix(said, "worker") {
		t.Errorf("with room again it hears %q", said)
	}
	if d := h.domain("d5"); d.Accelerator != "A1" {
		t.Errorf("d5 is on %q", d.Accelerator)
	}
}

// The domains on an accelerator have at most max_credits together: more are refused, of another domain and of one that is
// there. A reload that lowers the limit moves none of them.
func TestMaxCredits(t *testing.T) {
	const config = `
[[accelerator]]
name = "soft0"
memory = "64MiB"
max_credits = %d
[[domain]]
name = "a"
[[domain]]
name = "b"
credits = 128
[[domain]]
name = "c"
`
	h := newHost(t, fmt.Sprintf(config, 512))
	h.guest("a")
	b := h.guest("b")
	if answer, want := h.knock("c").hear(), "soft0 has 128 of 512 credits left (max_credits), c has 256"; !strings.Contains(answer, want) {
		t.Errorf("c: %q, want %q", answer, want)
	}
	if err := h.set("a", "credits", "385"); err == nil || !strings.Contains(err.Error(), "the domains on soft0 would have 513 credits together, of max_credits = 512") {
		t.Errorf("385 credits beside 128: %v", err)
	}
	h.mustSet("a", "credits", "384")
	if fit, err := h.api().Fits(bg, control.FitParams{Settings: map[string]string{"credits": "1"}}); err != nil || fit[0].Fits || !strings.Contains(fit[0].Reasons[0], "513 credits together, of max_credits = 512") {
		t.Errorf("another credit: %+v, %v", fit, err)
	}
	h.mustReload(fmt.Sprintf(config, 256))
	if most := h.accelerator().MaxCredits; most != 256 {
		t.Errorf("max_credits = %d after the reload", most)
	}
	h.mustSet("b", "credits", "100")
	b.must("context")
	h.mustReload(fmt.Sprintf(config, 0))
	h.guest("c")
}

// hold makes a domain, like `pegasus run`.
func (h *host) hold(name string) {
	h.t.Helper()
	if _, err := h.api().Hold(bg, control.HoldParams{Domain: name}); err != nil {
		h.t.Fatal(err)
	}
}

func TestQuotaOverProcesses(t *testing.T) {
	h := newHost(t, `
[[accelerator]]
name = "soft0"
memory = "256MiB"
[[domain]]
name = "a"
memory = "64MiB"
[[domain]]
name = "b"
`)
	one, two, other := h.guest("a"), h.guest("a"), h.guest("b")
	for _, g := range []*guest{one, two, other} {
		g.must("context")
	}
	one.must("alloc 41943040")
	if said := two.sendOrder("alloc 41943040"); !strings.Contains(said, "OUT_OF_MEMORY") {
		t.Errorf("over the quota of its domain a process hears %q", said)
	}
	other.must("alloc 41943040")
	one.kill()
	h.eventually("the quota is free again", func() bool { return two.sendOrder("alloc 41943040") == "ok" })
	if _, err := h.api().Set(bg, control.SetParams{Domain: "a", Settings: map[string]string{"memory": "128MiB"}}); err != nil {
		t.Fatal(err)
	}
	two.must("alloc 41943040")
}

func TestProcessLimits(t *testing.T) {
	h := newHost(t, `
[[accelerator]]
name = "soft0"
[[domain]]
name = "few"
processes = 1
[[domain]]
name = "small"
arena = "64MiB"
host_memory = "100MiB"
`)
	h.guest("few").must("ping")
	if said := h.knock("few").hear(); !strings.Contains(said, "processes = 1") {
		t.Errorf("a process too many hears %q", said)
	}
	h.guest("small").must("ping")
	if said := h.knock("small").hear(); !strings.Contains(said, "host_memory") {
		t.Errorf("an arena too many hears %q", said)
	}
}

// A guest that connects without end, with invalid Hellos, fills neither the host's log nor its journal of
// events.
func TestFloodOfHellos(t *testing.T) {
	h := newHost(t, twoDomains)
	if _, err := h.api().Set(bg, control.SetParams{Domain: "b", Settings: map[string]string{"credits": "77"}}); err != nil {
		t.Fatal(err)
	}
	const hellos = 2000
	began := time.Now()
	for range hellos {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(h.dir, "domains", "a.sock"), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("hello"))
		c.Read(make([]byte, 512))
		c.Close()
	}
	took := time.Since(began)
	said := func() int {
		log, err := os.ReadFile(filepath.Join(h.dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(log), "kind=refused domain=a")
	}
	h.eventually("hellos are in the log", func() bool { return said() >= 100 })
	if n, most := said(), hellos/4+20*int(took/time.Second); n > most { // 16 a second, and some at once
		t.Errorf("%d of %d hellos within %v are in the log, want at most %d", n, hellos, took, most)
	}
	c, err := client.Dial(filepath.Join(h.dir, control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	found := errors.New("found")
	err = c.Events(bg, func(e control.Event) error {
		if e.Kind == "set" && e.Domain == "b" {
			return found
		}
		if e.Domain != "a" {
			return nil
		}
		return fmt.Errorf("first comes %+v", e)
	})
	if err != found {
		t.Errorf("another domain's event: %v", err)
	}
}

// Many processes of a domain write no more into the log than one may.
func TestFloodOfLines(t *testing.T) {
	h := newHost(t, strings.Replace(twoDomains, "[[domain]]", "refuse_ptx = \"launch\"\n[[domain]]", 1))
	began := time.Now()
	var all []*guest
	for range 16 {
		g := h.guest("a")
		g.must("context")
		all = append(all, g)
	}
	for _, g := range all {
		fmt.Fprintln(g.in, "complain 500") // all at once
	}
	for _, g := range all {
		if said := g.hear(); said != "ok" {
			t.Fatalf("the guest says %q", said)
		}
	}
	h.stop()
	took := time.Since(began)
	log, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	const others = 64 << 10 // the daemon's own lines
	if n, most := len(log), gate.LogBurst+others+2*gate.LogRate*int(1+took/time.Second); n < gate.LogBurst/2 || n > most {
		t.Errorf("the log has %d bytes after %v, want at most %d", n, took, most)
	}
}

// Callers that connect without end fill the log no more than guests do.
func TestFloodOfConnections(t *testing.T) {
	h := newHost(t, twoDomains)
	path := filepath.Join(h.dir, control.SocketName)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	began, refused := time.Now(), 0
	for refused < 3000 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if len(held) < 256 {
			held = append(held, c)
			continue
		}
		c.Read(make([]byte, 1)) // until the daemon hangs up
		c.Close()
		refused++
	}
	took := time.Since(began)
	log, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	n, most := strings.Count(string(log), "too many connections"), brakeBurst+brakeRate*int(1+took/time.Second)
	if n == 0 || n > most {
		t.Errorf("%d of %d refusals within %v are in the log, want at most %d", n, refused, took, most)
	}
}

func TestWhoMayControl(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: this one becomes somebody else")
	}
	h := newHost(t, twoDomains+`
[daemon]
control_group = "54321"
`)
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(h.dir, "client") // where others may execute it
	if out, err := exec.Command("cp", os.Args[0], program).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	path := filepath.Join(h.dir, control.SocketName)
	for _, c := range []struct {
		name string
		cred syscall.Credential
		open bool // the socket's mode permits every user
		want string
	}{
		{"root", syscall.Credential{}, false, ""},
		{"stranger", syscall.Credential{Uid: 4242, Gid: 4242, NoSetGroups: false}, false, "permission denied"},
		{"stranger who got through", syscall.Credential{Uid: 4242, Gid: 4242}, true, "may not control"},
		{"member", syscall.Credential{Uid: 4242, Gid: 4242, Groups: []uint32{1, 54321}}, false, ""},
		{"member by primary group", syscall.Credential{Uid: 4242, Gid: 54321}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			mode := os.FileMode(0o660)
			if c.open {
				mode = 0o666
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, path)
			cmd.Env = []string{"BECOME=client"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &c.cred}
			out, err := cmd.CombinedOutput()
			if (err != nil) != (c.want != "") || !strings.Contains(string(out), c.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestReload(t *testing.T) {
	h := newHost(t, twoDomains)
	h.guest("a").must("ping")
	h.configure(strings.Replace(twoDomains, `name = "a"`, "name = \"a\"\ncredits = 512", 1))
	r, err := h.api().Reload(bg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Changes) != 1 || !r.Changes[0].Applied || h.domain("a").Credits != 512 {
		t.Errorf("reload: %+v, then %+v", r, h.domain("a"))
	}
	h.configure(twoDomains + "credits = 0\n")
	_, err = h.api().Reload(bg)
	if err == nil || !strings.Contains(err.Error(), "credits = 0") || h.domain("a").Credits != 512 {
		t.Errorf("bad reload: %v, then %+v", err, h.domain("a"))
	}
	h.configure(twoDomains + "[[domain]]\nname = \"c\"\n")
	h.cmd.Process.Signal(syscall.SIGHUP)
	h.eventually("SIGHUP does the same", func() bool { return h.knows("c") })
	h.guest("c").must("ping")
}

// An accelerator with more promises than capacity counts by half for placement.
func TestOverloadedAcceleratorCountsByHalf(t *testing.T) {
	h := newHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\npolicy = \"slaf\"\n[[domain]]\nname = \"a\"\n")
	g := h.guest("a")
	g.must("context")
	before := h.accelerator().Weight
	h.mustSet("a", "slo", "960")
	if got := h.accelerator().Weight; got != before/2 || got == 0 {
		t.Errorf("weight %d before, %d while 96 %% are promised", before, got)
	}
}
