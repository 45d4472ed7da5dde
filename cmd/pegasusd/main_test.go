package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/frontend"
	"pegasus/internal/testkit"
)

// TestMain makes the test binary also the programs that the tests start: the daemon, its workers, and guests.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "worker":
		os.Exit(work())
	case os.Getenv("BECOME") == "daemon":
		xenCapabilities = cmp.Or(os.Getenv("XEN_CAPABILITIES"), xenCapabilities)
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	case os.Getenv("BECOME") == "hub":
		os.Exit(runHub(os.Args[1:], os.Stderr))
	case os.Getenv("BECOME") == "guest":
		os.Exit(converse(os.Stdin, os.Stdout))
	case os.Getenv("BECOME") == "holder":
		os.Exit(holdUntilTold(os.Args[1], os.Args[2]))
	case os.Getenv("BECOME") == "client":
		os.Exit(showStatus(os.Args[1]))
	}
	os.Exit(m.Run())
}

// host is a daemon of the test's own.
type host struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	args []string
}

func newHost(t *testing.T, config string, args ...string) *host {
	t.Helper()
	h := prepareHost(t, config, args...)
	h.start()
	return h
}

// prepareHost is newHost without starting the daemon.
func prepareHost(t *testing.T, config string, args ...string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, args: args}
	h.configure(config)
	t.Cleanup(func() {
		h.stop()
		h.endSurvivors()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("log:\n%s", text)
		}
		os.RemoveAll(dir)
	})
	return h
}

func (h *host) configure(config string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "pegasus.toml"), []byte(config), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// start starts the daemon and waits until it is ready.
func (h *host) start() {
	h.t.Helper()
	if said := h.tryStart(); said != "ready" {
		h.t.Fatalf("the daemon says %q", said)
	}
}

func (h *host) tryStart() string {
	h.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	defer r.Close()
	log, err := os.OpenFile(filepath.Join(h.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	h.cmd = exec.Command(os.Args[0], append([]string{"--runtime-dir", h.dir, "--config", filepath.Join(h.dir, "pegasus.toml"), "--ready-fd", "3"}, h.args...)...)
	h.cmd.Env = append(os.Environ(), "BECOME=daemon")
	h.cmd.Stdout, h.cmd.Stderr, h.cmd.ExtraFiles = log, log, []*os.File{w}
	err = h.cmd.Start()
	w.Close()
	if err != nil {
		h.t.Fatal(err)
	}
	said, err := io.ReadAll(r)
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(said))
}

func (h *host) stop() {
	if h.cmd == nil {
		return
	}
	h.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(30*time.Second, func() { h.cmd.Process.Signal(syscall.SIGQUIT) })
	h.cmd.Wait()
	timer.Stop()
	h.cmd = nil
}

// crash kills the daemon.
func (h *host) crash() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
	h.cmd = nil
}

// endSurvivors ends the recorded workers.
func (h *host) endSurvivors() {
	records, _ := filepath.Glob(filepath.Join(h.dir, "workers", "*.json"))
	for _, path := range records {
		var r struct{ PID int }
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &r) == nil && r.PID > 0 {
			syscall.Kill(r.PID, syscall.SIGKILL)
		}
	}
}

// record returns the path of a worker's record.
func (h *host) record(worker int) string {
	h.t.Helper()
	records, _ := filepath.Glob(filepath.Join(h.dir, "workers", "*.json"))
	for _, path := range records {
		var r struct{ PID int }
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &r) == nil && r.PID == worker {
			return path
		}
	}
	h.t.Fatalf("worker %d is in none of %v", worker, records)
	return ""
}

// bg is the context of requests.
var bg = context.Background()

// api returns a connection to the daemon.
func (h *host) api() *client.Client {
	h.t.Helper()
	c, err := client.Dial(filepath.Join(h.dir, control.SocketName))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

func (h *host) domain(name string) control.Domain {
	h.t.Helper()
	c := h.api()
	defer c.Close() // callers poll
	d, err := c.Domain(bg, name)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

// soon is the time limit for what normally takes a second at most, with room for a slow machine.
const soon = time.Minute

// eventually polls until ok returns true, for at most soon.
func (h *host) eventually(what string, ok func() bool) {
	h.t.Helper()
	testkit.Within(h.t, soon, what, ok)
}

// guest is a process that carries out orders, a line at a time.
type guest struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	worker int
}

// guest starts a guest; it fails the test if it isn't served.
func (h *host) guest(domain string) *guest {
	h.t.Helper()
	return h.served(exec.Command(os.Args[0]), h.oldSocket(domain))
}

// oldSocket returns the older path of a domain's socket, which programs continue to use.
func (h *host) oldSocket(domain string) string {
	return filepath.Join(h.dir, "domains", domain+".sock")
}

// served starts a guest that connects at a path; it fails the test if it isn't served.
func (h *host) served(cmd *exec.Cmd, socket string) *guest {
	h.t.Helper()
	g := h.begin(cmd, socket)
	said := g.hear()
	var err error
	if g.worker, err = strconv.Atoi(strings.TrimPrefix(said, "worker ")); err != nil {
		h.t.Fatalf("the guest says %q", said)
	}
	return g
}

// knock starts a guest that may be refused.
func (h *host) knock(domain string) *guest {
	h.t.Helper()
	return h.begin(exec.Command(os.Args[0]), h.oldSocket(domain))
}

func (h *host) begin(cmd *exec.Cmd, socket string) *guest {
	h.t.Helper()
	g := &guest{t: h.t, cmd: cmd}
	g.cmd.Env = append(os.Environ(), "BECOME=guest", "PEGASUS_SOCKET="+socket)
	var err error
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		h.t.Fatal(err)
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	g.out = bufio.NewReader(out)
	if err := g.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		g.cmd.Process.Kill()
		g.cmd.Wait()
	})
	return g
}

func (g *guest) hear() string {
	line, err := g.out.ReadString('\n')
	if err != nil {
		return fmt.Sprintf("nothing: %v", err)
	}
	return strings.TrimSpace(line)
}

// sendOrder sends an order and returns the answer.
func (g *guest) sendOrder(format string, args ...any) string {
	fmt.Fprintf(g.in, format+"\n", args...)
	return g.hear()
}

func (g *guest) must(format string, args ...any) {
	g.t.Helper()
	if said := g.sendOrder(format, args...); said != "ok" {
		g.t.Fatalf("guest, "+format+": %s", append(args, said)...)
	}
}

func (g *guest) kill() {
	g.cmd.Process.Kill()
	g.cmd.Wait()
}

// converse is the guest's side.
func converse(in io.Reader, out io.Writer) int {
	c, err := frontend.Dial(os.Getenv("PEGASUS_SOCKET"))
	if err != nil {
		fmt.Fprintln(out, "refused:", err)
		return 1
	}
	defer c.Close()
	fmt.Fprintln(out, "worker", c.WorkerPID())
	var x *frontend.Context
	for s := bufio.NewScanner(in); s.Scan(); {
		if err := obey(c, &x, strings.Fields(s.Text())); err != nil {
			fmt.Fprintln(out, "error:", err)
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
	return 0
}

func obey(c *frontend.Client, x **frontend.Context, order []string) (err error) {
	switch order[0] {
	case "ping":
		return c.Ping()
	case "context":
		*x, err = c.NewContext(0, 0)
		return err
	case "alloc":
		n, err := strconv.ParseUint(order[1], 10, 64)
		if err != nil {
			return err
		}
		_, err = (*x).Alloc(n)
		return err
	case "busy":
		ahead := 64 // the accelerator has work even while this process waits for a CPU
		if len(order) > 2 {
			if ahead, err = strconv.Atoi(order[2]); err != nil {
				return err
			}
		}
		return keepBusy(*x, order[1], ahead)
	case "complain":
		return complain(*x, order[1])
	default:
		return fmt.Errorf("unknown order %q", order)
	}
}

// keepBusy fills memory for a while, with so many requests queued.
func keepBusy(x *frontend.Context, duration string, ahead int) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	const size = 4 << 20
	addr, err := x.Alloc(size)
	if err != nil {
		return err
	}
	s, err := x.NewStream(0)
	if err != nil {
		return err
	}
	e, err := x.NewEvent(0)
	if err != nil {
		return err
	}
	for n, start := uint64(1), time.Now(); time.Since(start) < d; n++ {
		for range ahead {
			if err := x.Fill(s, addr, byte(n), size); err != nil {
				return err
			}
		}
		if n > 1 {
			if err := x.SynchronizeEvent(e); err != nil {
				return err
			}
		}
		if err := x.Record(s, e, n); err != nil {
			return err
		}
	}
	return x.Synchronize()
}

// refused is a program that is refused at each launch, with a line in the log.
const refused = `.version 6.0
.target sm_50
.address_size 64
.visible .entry k() { nonsense; ret; }
`

// complain launches a kernel that is refused so often.
func complain(x *frontend.Context, times string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	m, _, err := x.LoadModule([]byte(refused))
	if err != nil {
		return err
	}
	k, err := m.Function("k")
	if err != nil {
		return err
	}
	for range n {
		m.Launch(frontend.Stream(0), k, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, nil)
		x.Synchronize()
	}
	return nil
}

// showStatus requests the state of the daemon, as this process's user.
func showStatus(path string) int {
	c, err := client.Dial(path)
	if err == nil {
		_, err = c.Status(bg)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
