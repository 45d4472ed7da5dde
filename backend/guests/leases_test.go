package guests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/hypervisor"
	"pegasus/internal/testkit"
)

var operator = control.Peer{UID: 7, PID: 4711}

// describe lists all domains, each with its owner and the holders of its leases.
func (d *Registry) describe() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.domains)) {
		dom := d.domains[name]
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %s %s", name, dom.owner(), strings.Join(dom.holders(), " "))))
	}
	return strings.Join(all, ", ")
}

func (d *Registry) expect(t *testing.T, what, want string) {
	t.Helper()
	if got := d.describe(); got != want {
		t.Errorf("%s: there are %q, want %q", what, got, want)
	}
}

// next returns a daemon that starts in the directory of d after d was killed.
func (d *Registry) next(t *testing.T, c *configs.Config) *Registry {
	t.Helper()
	n := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	n.opt.RuntimeDir, n.opt.Config, n.config, n.started = d.opt.RuntimeDir, c, c, time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.declare(); err != nil {
		t.Fatal(err)
	}
	n.store.restore()
	if err := n.openDeclared(); err != nil {
		t.Fatal(err)
	}
	n.store.openRestored()
	return n
}

func settingsFrom(pairs ...string) map[string]string {
	all := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		all[k] = v
	}
	return all
}

func (d *Registry) mustCreate(t *testing.T, q control.CreateParams) control.Domain {
	t.Helper()
	made, err := d.Requests().Create(operator, q)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func code(err error) string {
	var e *control.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

// A repeated create changes nothing. With other settings, or for a domain with another owner, create returns an error
// that names both sides, and changes nothing.
func TestCreate(t *testing.T) {
	a := &endpoints{open: map[string]bool{}}
	d := newTestRegistry(t, a)
	d.config = declaring("declared")
	if _, err := d.follow(d.config); err != nil {
		t.Fatal(err)
	}
	q := control.CreateParams{Domain: "pod", Settings: settingsFrom("credits=512", "memory=1GiB", "socket_mode=0666"), Holder: "one"}
	made := d.mustCreate(t, q)
	if made.Credits != 512 || made.MemoryQuota != 1<<30 || made.Owner != control.OwnerHeld || made.Socket == "" {
		t.Errorf("%+v", made)
	}
	q.Settings = settingsFrom("memory=1024MiB", "credits=512", "socket_mode=0666", "priority=0") // the same settings in other spellings
	d.mustCreate(t, q)
	q.Holder = "two"
	d.mustCreate(t, q)
	if _, err := d.Requests().Set(operator, control.SetParams{Domain: "pod", Settings: settingsFrom("credits=600")}); err != nil {
		t.Fatal(err)
	}
	d.mustCreate(t, q)                                                                          // an operator's settings do not count
	d.updateMachines([]hypervisor.Machine{machine("machine", hypervisor.MachineRunning, 1, 0)}) // it is no domain, with undeclared_domains = false
	d.expect(t, "before", "declared: declared, pod: held one two")
	for want, q := range map[string]control.CreateParams{
		"created for one, two with credits=512 memory=1GiB socket_mode=0666, not with credits=513": {Domain: "pod", Settings: settingsFrom("credits=513"), Holder: "one"},
		"not with the defaults":               {Domain: "pod", Holder: "three"},
		"the configuration declares it":       {Domain: "declared"},
		"must be 1 to 63 letters":             {Domain: "../x"},
		`doesn't end in ".sock"`:              {Domain: "x.sock"},
		"colour: unknown key":                 {Domain: "new", Settings: settingsFrom("colour=red")},
		"name: unknown key":                   {Domain: "new", Settings: settingsFrom("name=other")},
		`accelerator = "soft9"`:               {Domain: "new", Settings: settingsFrom("accelerator=soft9")},
		"printable ASCII":                     {Domain: "new", Holder: "a b"},
		"at most 256 bytes":                   {Domain: "new", Settings: settingsFrom("credits=" + strings.Repeat("0", 300) + "1")},
		"1 to 128 printable":                  {Domain: "new", Holder: strings.Repeat("x", 129)},
		"expires in -1ns":                     {Domain: "new", Expires: -1},
		"expires in 2562047h47m16.854775807s": {Domain: "new", Expires: 1<<63 - 1},
	} {
		if _, err := d.Requests().Create(operator, q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want …%s…", q, err, want)
		}
	}
	d.expect(t, "after", "declared: declared, pod: held one two")
	if len(a.open) != 2 || d.leases != 2 {
		t.Errorf("open %v, %d leases", a.open, d.leases)
	}
	d.leases = maxLeases
	q.Holder = "three"
	if _, err := d.Requests().Create(operator, q); code(err) != control.CodeConflict {
		t.Errorf("a lease too many: %v", err)
	}
	q.Holder = "two"
	d.mustCreate(t, q)
	d.leases = 2
	d.mostEndpoints = 2
	if _, err := d.Requests().Create(operator, control.CreateParams{Domain: "new"}); err == nil || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
		t.Errorf("a domain too many: %v", err)
	}
	a.broken, d.mostEndpoints = "new", 100
	if _, err := d.Requests().Create(operator, control.CreateParams{Domain: "new"}); err == nil {
		t.Error("an endpoint that doesn't open is no error")
	}
	a.broken, d.ending = "", true
	if _, err := d.Requests().Create(operator, control.CreateParams{Domain: "new"}); err != errEnding {
		t.Errorf("at the end: %v", err)
	}
	d.expect(t, "at the end", "declared: declared, pod: held one two")
}

// A domain that cannot be written to the state file is not created.
func TestCreateThatCantBeWrittenDown(t *testing.T) {
	a := &endpoints{open: map[string]bool{}}
	d := newTestRegistry(t, a)
	inTheWay := filepath.Join(d.store.statePath()+".new", "x")
	if err := os.MkdirAll(inTheWay, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Requests().Create(operator, control.CreateParams{Domain: "pod"}); code(err) != control.CodeInternal {
		t.Errorf("%v", err)
	}
	if len(d.domains) != 0 || len(a.open) != 0 || d.leases != 0 {
		t.Errorf("%s, open %v, %d leases", d.describe(), a.open, d.leases)
	}
}

// A created domain lives until its last lease has been released or has expired.
func TestLeases(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	began := time.Now()
	term := func(holder string, expires time.Duration) control.CreateParams {
		return control.CreateParams{Domain: "pod", Holder: holder, Expires: int64(expires)}
	}
	d.mustCreate(t, term("one", time.Hour))
	d.mustCreate(t, term("two", 2*time.Hour))
	d.mustCreate(t, term("three", 0))
	at := func(after time.Duration) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.expire(began.Add(after))
	}
	at(59 * time.Minute)
	d.expect(t, "before the first expires", "pod: held one three two")
	at(61 * time.Minute)
	d.expect(t, "when it has", "pod: held three two")
	if _, err := d.Requests().Renew(operator, control.LeaseParams{Domain: "pod", Holder: "one", Expires: 1}); code(err) != control.CodeNotFound {
		t.Errorf("a lease that has expired was renewed: %v", err)
	}
	if _, err := d.Requests().Renew(operator, control.LeaseParams{Domain: "pod", Holder: "two", Expires: int64(4 * time.Hour)}); err != nil {
		t.Error(err)
	}
	at(3 * time.Hour)
	d.expect(t, "when one was renewed", "pod: held three two")
	for _, want := range []string{"", control.CodeNotFound} {
		if err := d.Requests().Release(operator, control.LeaseParams{Domain: "pod", Holder: "three"}); err == nil != (want == "") || err != nil && code(err) != want {
			t.Errorf("release: %v, want %q", err, want)
		}
	}
	d.mustCreate(t, term("two", 5*time.Hour)) // create also renews
	at(4*time.Hour + time.Minute)
	d.expect(t, "when create has renewed", "pod: held two")
	at(6 * time.Hour)
	d.expect(t, "at the end", "")
	if d.leases != 0 || !d.soonest.IsZero() {
		t.Errorf("%d leases are counted, the next to expire at %v", d.leases, d.soonest)
	}
	if err := d.Requests().Release(operator, control.LeaseParams{Domain: "pod", Holder: "two"}); code(err) != control.CodeNotFound {
		t.Errorf("of no domain: %v", err)
	}
}

// The next daemon restores domains, leases, holds and settings, however its predecessor ended; except those that were
// released, have expired meanwhile, or belong to a process that has ended.
func TestOwnersOutliveTheDaemon(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	d.mustCreate(t, control.CreateParams{Domain: "kept", Settings: settingsFrom("credits=512", "memory=64MiB"), Holder: "pod"})
	d.mustCreate(t, control.CreateParams{Domain: "expired", Holder: "pod", Expires: 1})
	d.mustCreate(t, control.CreateParams{Domain: "released"})
	d.mustCreate(t, control.CreateParams{Domain: "set"})
	if _, err := d.Requests().Set(operator, control.SetParams{Domain: "set", Settings: settingsFrom("credits=777")}); err != nil {
		t.Fatal(err)
	}
	program := exec.Command("sleep", "600")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Process.Kill(); program.Wait() })
	for name, pid := range map[string]int{"ours": os.Getpid(), "theirs": program.Process.Pid} {
		if _, err := d.Requests().Hold(control.Peer{PID: pid}, control.HoldParams{Domain: name, Credits: 99}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Requests().Release(operator, control.LeaseParams{Domain: "released"}); err != nil {
		t.Fatal(err)
	}
	d.expect(t, "before", "expired: held pod, kept: held pod, ours: guest, set: held uid-7, theirs: guest")
	program.Process.Kill()
	program.Wait()
	c := configs.Default()
	c.Daemon.UndeclaredDomains = true
	n := d.next(t, c)
	n.expect(t, "after", "kept: held pod, ours: guest, set: held uid-7")
	for name, credits := range map[string]int{"kept": 512, "ours": 99, "set": 777} {
		if got := n.domains[name].settings.Credits; got != credits {
			t.Errorf("%s has %d credits, want %d", name, got, credits)
		}
	}
	if got := n.domains["kept"]; got.settings.Memory != 64*configs.MiB || got.endpoint == nil || n.leases != 2 || n.holders != 1 {
		t.Errorf("%+v; %d leases, %d holders", got, n.leases, n.holders)
	}
	n.mustCreate(t, control.CreateParams{Domain: "kept", Settings: settingsFrom("memory=64MiB", "credits=512"), Holder: "pod"})
	c = declaring("kept") // and without domains that the file does not name
	n = n.next(t, c)
	n.expect(t, "where the file names one", "kept: declared pod, ours: guest, set: held uid-7")
	if n.domains["kept"].settings.Credits != 256 || n.domains["ours"].endpoint != nil || n.domains["set"].endpoint == nil {
		t.Errorf("credits %d, ours %v, set %v", n.domains["kept"].settings.Credits, n.domains["ours"].endpoint, n.domains["set"].endpoint)
	}
}

// A process with the reused pid of an ended program doesn't hold the program's domain.
func TestReusedPID(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	if _, err := d.Requests().Hold(control.Peer{PID: os.Getpid()}, control.HoldParams{Domain: "ours"}); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.domains["ours"].programs[0].Start--
	d.store.changed = true
	err := d.store.save()
	d.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	d.next(t, configs.Default()).expect(t, "after", "")
}

// An unreadable state is kept aside, and the daemon starts without it.
func TestDamagedState(t *testing.T) {
	for name, text := range map[string]string{
		"half":            `{"version":1,"domains":{"we`,
		"nothing":         "",
		"another version": `{"version":2,"domains":{"web":{"created":{},"leases":{"x":{}}}}}`,
		"another shape":   `{"version":1,"domains":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
			if err := os.WriteFile(d.store.statePath(), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			n := d.next(t, declaring("declared"))
			n.expect(t, "after", "declared: declared")
			if kept, err := os.ReadFile(d.store.statePath() + ".unread"); err != nil || string(kept) != text {
				t.Errorf("kept is %q, %v", kept, err)
			}
		})
	}
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}}) // a state of an earlier release, without a version
	if err := os.WriteFile(d.store.statePath(), []byte(`{"domains":{"declared":{"settings":{"credits":{"value":"7","file":"256"}},"past":{}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := d.next(t, declaring("declared")).domains["declared"].settings.Credits; got != 7 {
		t.Errorf("an older release's state: credits %d, want 7", got)
	}
}

// The settings of a program last as long as the program, unless an operator overrides them.
func TestProgramsSettings(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	if _, err := d.follow(declaring("web")); err != nil {
		t.Fatal(err)
	}
	start := func(credits int) *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		for range 2 { // a second request changes nothing
			if _, err := d.Requests().Hold(control.Peer{PID: cmd.Process.Pid}, control.HoldParams{Domain: "web", Credits: credits}); err != nil {
				t.Fatal(err)
			}
		}
		return cmd
	}
	end := func(cmd *exec.Cmd, left int) {
		cmd.Process.Kill()
		cmd.Wait()
		testkit.Eventually(t, fmt.Sprintf("%d programs hold domains", left), func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.holders == left
		})
	}
	credits := func(want int) {
		t.Helper()
		d.mu.Lock()
		defer d.mu.Unlock()
		if got := d.domains["web"].settings.Credits; got != want {
			t.Errorf("credits %d, want %d", got, want)
		}
	}
	one := start(512)
	two := start(0)
	three := start(700)
	credits(700)
	end(three, 2)
	credits(512)
	if _, err := d.Requests().Set(operator, control.SetParams{Domain: "web", Settings: settingsFrom("credits=100")}); err != nil {
		t.Fatal(err)
	}
	credits(100)
	end(one, 1)
	credits(100)
	end(two, 0)
	d.expect(t, "at the end", "web: declared")

	// Processes started by the program may live on: the domain keeps the settings for them.
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	d.config.Daemon.UndeclaredDomains = true
	if _, err := d.Requests().Hold(control.Peer{PID: cmd.Process.Pid}, control.HoldParams{Domain: "guests", Credits: 42}); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	dom := d.domains["guests"]
	child := &guest{dom: dom}
	dom.guests[child] = struct{}{}
	d.mu.Unlock()
	end(cmd, 0)
	d.expect(t, "with a guest", "guests: guest, web: declared")
	if d.domains["guests"].settings.Credits != 42 || d.domains["guests"].set["credits"].Value != "42" {
		t.Errorf("%+v", dom.settings)
	}
	d.mu.Lock()
	delete(dom.guests, child)
	dom.endIfUnowned()
	d.mu.Unlock()
	d.expect(t, "without", "web: declared")
}

// Remove rejects domains that are in use or have another owner, and names the remedy.
func TestRemove(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	d.opt.ConfigPath = "/etc/file.toml"
	c := declaring("declared")
	c.Daemon.UndeclaredDomains = true
	if _, err := d.follow(c); err != nil {
		t.Fatal(err)
	}
	d.updateMachines([]hypervisor.Machine{machine("machine", hypervisor.MachineRunning, 1, 0)})
	d.mustCreate(t, control.CreateParams{Domain: "own"})
	d.mustCreate(t, control.CreateParams{Domain: "leased", Holder: "pod"})
	if _, err := d.Requests().Hold(control.Peer{PID: os.Getpid()}, control.HoldParams{Domain: "run"}); err != nil {
		t.Fatal(err)
	}
	for want, q := range map[string]control.RemoveParams{
		"/etc/file.toml declares it; take its [[domain]] out": {Domain: "declared", Mode: control.RemoveEnd},
		"pegasus detach machine":                              {Domain: "machine", Mode: control.RemoveWait},
		"leased by pod; --wait":                               {Domain: "leased"},
		"it is held by 1 program (pegasus run); --wait":       {Domain: "run", Mode: control.RemoveRefuse},
		"there is none of that name":                          {Domain: "none"},
		"must be refuse, wait or end":                         {Domain: "own", Mode: "gently"},
	} {
		if err := d.Requests().Remove(t.Context(), operator, q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want …%s…", q, err, want)
		}
	}
	d.expect(t, "refused", "declared: declared, leased: held pod, machine: machine, own: held uid-7, run: guest")
	for _, q := range []control.RemoveParams{{Domain: "own"}, {Domain: "leased", Mode: control.RemoveWait}, {Domain: "run", Mode: control.RemoveEnd}} {
		if err := d.Requests().Remove(t.Context(), operator, q); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	d.expect(t, "removed", "declared: declared, machine: machine")
	if d.leases != 0 || d.holders != 0 {
		t.Errorf("%d leases and %d programs are counted", d.leases, d.holders)
	}
}

// While a removal waits, no process enters, also after a reload or a restart. A declaration in the configuration
// revokes the removal.
func TestRemoveWaits(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	program := exec.Command("sleep", "600")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Process.Kill(); program.Wait() })
	d.mustCreate(t, control.CreateParams{Domain: "pod"})
	hold := func(d *Registry) error {
		_, err := d.Requests().Hold(control.Peer{PID: program.Process.Pid}, control.HoldParams{Domain: "pod"})
		return err
	}
	if err := hold(d); err != nil {
		t.Fatal(err)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if err := d.Requests().Remove(ctx, operator, control.RemoveParams{Domain: "pod", Mode: control.RemoveWait}); err != errEnding {
		t.Errorf("a caller that hung up: %v", err)
	}
	closed := func(what string, d *Registry) {
		t.Helper()
		if err := hold(d); err == nil || !strings.Contains(err.Error(), "is being removed") {
			t.Errorf("%s, hold: %v", what, err)
		}
		if _, err := d.Requests().Create(operator, control.CreateParams{Domain: "pod"}); code(err) != control.CodeConflict {
			t.Errorf("%s, create: %v", what, err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if dom := d.domains["pod"]; dom.endpoint != nil || !dom.removing {
			t.Errorf("%s: %+v", what, dom)
		}
	}
	closed("at once", d)
	if _, err := d.follow(d.config); err != nil {
		t.Fatal(err)
	}
	closed("after a reload", d)
	n := d.next(t, d.config)
	closed("after a restart", n)
	overtaken := make(chan error)
	_, gone, err := n.Requests().beginRemoval(operator, control.RemoveParams{Domain: "pod", Mode: control.RemoveWait})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		overtaken <- n.Requests().Remove(t.Context(), operator, control.RemoveParams{Domain: "pod", Mode: control.RemoveWait})
	}()
	testkit.Eventually(t, "the second removal begins", func() bool { return n.removals() >= 2 })
	if _, err := n.follow(declaring("pod")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("a caller that waits for the removal isn't told of the declaration")
	}
	if err := <-overtaken; err == nil || !strings.Contains(err.Error(), "a reload declared the domain meanwhile") {
		t.Errorf("overtaken: %v", err)
	}
	if dom := n.domains["pod"]; dom.endpoint == nil || dom.removing || !dom.declared {
		t.Errorf("declared: %+v", dom)
	}
	waits := make(chan error)
	go func() {
		waits <- d.Requests().Remove(t.Context(), operator, control.RemoveParams{Domain: "pod", Mode: control.RemoveWait})
	}()
	program.Process.Kill()
	program.Wait()
	if err := <-waits; err != nil && code(err) != control.CodeNotFound { // as it is if the program was faster
		t.Errorf("in the end: %v", err)
	}
	d.expect(t, "in the end", "")
}

// removals returns how many removals have begun, by the journal.
func (d *Registry) removals() (n int) {
	latest, _, stop := d.journal.Follow()
	defer stop()
	for _, e := range latest {
		if e.Kind == "remove" {
			n++
		}
	}
	return n
}

// Events name the caller of each change.
func TestCallersAreNamed(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	d.mustCreate(t, control.CreateParams{Domain: "pod"})
	if _, err := d.Requests().Set(operator, control.SetParams{Domain: "pod", Settings: settingsFrom("credits=5")}); err != nil {
		t.Fatal(err)
	}
	d.opt.ConfigPath = filepath.Join(t.TempDir(), "empty.toml")
	if err := os.WriteFile(d.opt.ConfigPath, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reload(&operator); err != nil {
		t.Fatal(err)
	}
	if err := d.Requests().Remove(t.Context(), operator, control.RemoveParams{Domain: "pod"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Requests().Shutdown(operator, control.ShutdownParams{}); err != nil {
		t.Fatal(err)
	}
	latest, _, stop := d.journal.Follow()
	defer stop()
	named := map[string]bool{}
	for _, e := range latest {
		if e.By != nil && *e.By == (control.Caller{UID: 7, PID: 4711}) && time.Since(e.Time) < time.Hour {
			named[e.Kind] = true
		}
	}
	if got := slices.Sorted(maps.Keys(named)); !slices.Equal(got, []string{"create", "reload", "remove", "set", "shutdown"}) {
		t.Errorf("named in %v", got)
	}
}

// A restored domain of a machine, with its settings, waits a while for the machine to be reported.
func TestMachineAfterRestart(t *testing.T) {
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	d.opt.Machines = silent{}
	d.updateMachines([]hypervisor.Machine{machine("web", hypervisor.MachineOff, 0, 0), machine("other", hypervisor.MachineOff, 0, 0)})
	if _, err := d.Requests().Set(operator, control.SetParams{Domain: "web", Settings: settingsFrom("credits=77")}); err != nil {
		t.Fatal(err)
	}
	n := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	n.opt.RuntimeDir, n.opt.Machines, n.started = d.opt.RuntimeDir, silent{}, time.Now()
	n.mu.Lock()
	n.store.restore()
	n.store.openRestored()
	n.mu.Unlock()
	n.updateMachines(nil) // one of several libvirts
	n.expect(t, "at first", "other: machine, web: machine")
	n.updateMachines([]hypervisor.Machine{machine("web", hypervisor.MachineRunning, 1, 0)})
	n.mu.Lock()
	n.expire(n.started.Add(2 * machineTime))
	n.mu.Unlock()
	n.expect(t, "later", "web: machine")
	if got := n.domains["web"].settings.Credits; got != 77 {
		t.Errorf("credits %d, want 77", got)
	}
}

type silent struct{}

func (silent) Watch(context.Context, func([]hypervisor.Machine)) {}

// Concurrent create, lease, hold and remove of the same domains leave nothing behind.
func TestConcurrentLives(t *testing.T) {
	a := &endpoints{open: map[string]bool{}}
	d := newTestRegistry(t, a)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			me := control.Peer{UID: i, PID: os.Getpid()}
			for n := range 50 {
				q := control.CreateParams{Domain: fmt.Sprint("d", (i+n)%3), Holder: fmt.Sprint("h", n%2), Expires: int64(time.Duration(n%2) * time.Millisecond)}
				d.Requests().Create(me, q)
				d.Requests().Set(me, control.SetParams{Domain: q.Domain, Settings: settingsFrom(fmt.Sprint("credits=", n+1))})
				d.Requests().Domains(control.DomainParams{})
				if n%5 == 0 {
					d.Requests().Hold(me, control.HoldParams{Domain: q.Domain, Credits: n + 1})
				}
				d.mu.Lock()
				d.expire(time.Now())
				d.mu.Unlock()
				d.Requests().Release(me, control.LeaseParams{Domain: q.Domain, Holder: q.Holder})
				if err := d.Requests().Remove(t.Context(), me, control.RemoveParams{Domain: q.Domain, Mode: control.RemoveEnd}); err != nil && code(err) != control.CodeNotFound {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range 3 {
		d.Requests().Remove(t.Context(), operator, control.RemoveParams{Domain: fmt.Sprint("d", i), Mode: control.RemoveEnd})
	}
	d.end()
	d.tasks.Wait()
	if len(d.domains) != 0 || len(a.open) != 0 || d.leases != 0 || d.holders != 0 {
		t.Errorf("left: %s, open %v, %d leases, %d programs", d.describe(), a.open, d.leases, d.holders)
	}
}

// FuzzState starts a daemon with any state file: the daemon starts, and all its domains have valid names.
func FuzzState(f *testing.F) {
	whole, err := json.Marshal(state{stateVersion, map[string]domainState{"web": {Requested: requested{"credits": "7"}, Leases: map[string]lease{"pod": {}},
		Programs: []program{{process: process{1, 2}, Set: map[string]string{"credits": "9"}}}, Machine: true}}, nil, nil, nil, nil})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":1,"domains":{"../x":{"created":{}},"web":{"removing":true,"leases":{"":{"expires":"2200-01-01T00:00:00Z"}}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
		if err := os.WriteFile(d.store.statePath(), text, 0o600); err != nil {
			t.Fatal(err)
		}
		n := d.next(t, declaring("declared"))
		for name := range n.domains {
			if err := configs.CheckName(name); err != nil {
				t.Errorf("domain %q: %v", name, err)
			}
		}
		n.end()
		n.tasks.Wait()
	})
}
