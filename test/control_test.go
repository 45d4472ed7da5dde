package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
)

func (h *host) controlSocket() string { return filepath.Join(h.dir, control.SocketName) }

// caller returns a connection to the control socket, without a library.
func (h *host) caller() net.Conn {
	h.t.Helper()
	c, err := net.Dial("unix", h.controlSocket())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends raw bytes, and returns the answer's line.
func ask(t *testing.T, c net.Conn, line []byte) (a control.Answer, err error) {
	t.Helper()
	c.SetDeadline(time.Now().Add(soon))
	if _, err := c.Write(line); err != nil {
		return a, err
	}
	text, err := bufio.NewReaderSize(c, 1<<20).ReadBytes('\n')
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// A malformed request is answered with its error, and affects no other caller.
func TestControlNonsense(t *testing.T) {
	h := startHost(t, hostileDomains)
	before := h.quiet()
	for name, c := range map[string]struct {
		line, want string
	}{
		"empty":        {"\n", control.CodeMalformed},
		"no JSON":      {"hello\n", control.CodeMalformed},
		"no object":    {"[1,2,3]\n", control.CodeMalformed},
		"unknown key":  {`{"v":1,"id":1,"method":"status","colour":"red"}` + "\n", control.CodeMalformed},
		"two":          {`{"v":1,"id":1,"method":"status"}{}` + "\n", control.CodeMalformed},
		"deep":         {`{"v":1,"params":` + strings.Repeat("[", 60000) + "\n", control.CodeMalformed},
		"version":      {`{"v":2,"id":1,"method":"status"}` + "\n", control.CodeVersion},
		"method":       {`{"v":1,"id":1,"method":"launch"}` + "\n", control.CodeMethod},
		"parameters":   {`{"v":1,"id":1,"method":"set","params":{"domain":7}}` + "\n", control.CodeInvalid},
		"domain":       {`{"v":1,"id":1,"method":"set","params":{"domain":"../x","settings":{"credits":"1"}}}` + "\n", control.CodeNotFound},
		"hold":         {`{"v":1,"id":1,"method":"hold","params":{"domain":"../../etc/x"}}` + "\n", control.CodeInvalid},
		"64 KiB":       {strings.Repeat("x", control.MaxRequest) + "\n", control.CodeMalformed},
		"without end":  {strings.Repeat("x", 4*control.MaxRequest), control.CodeMalformed},
		"just fitting": {`{"v":1,"id":1,"method":"` + strings.Repeat("x", 60000) + `"}` + "\n", control.CodeMethod},
	} {
		t.Run(name, func(t *testing.T) {
			caller := h.caller()
			defer caller.Close()
			a, err := ask(t, caller, []byte(c.line))
			// A caller that is cut off in the middle of its line may not receive the reason.
			if name == "without end" && err != nil {
				return
			}
			if err != nil || a.Error == nil || a.Error.Code != c.want {
				t.Errorf("%v, %+v; want an error %q", err, a, c.want)
			}
		})
	}
	part := h.caller()
	part.Write([]byte(`{"v":1,"id":`)) // and silence
	h.domains()
	part.Close()
	h.settled(before)
	h.sound()
}

// Many connections are bounded in number, and are closed when their processes end.
func TestControlFlood(t *testing.T) {
	h := startHost(t, hostileDomains)
	before := h.quiet()
	const limit = 256
	var all []net.Conn
	for range limit + 44 {
		all = append(all, h.caller())
	}
	answers := func(c net.Conn) bool {
		_, err := ask(t, c, []byte(`{"v":1,"id":1,"method":"status"}`+"\n"))
		return err == nil
	}
	answered := 0
	for _, c := range all {
		if answers(c) {
			answered++
		}
	}
	// A command that has just ended may keep its connection for a moment.
	eventually(t, soon, "all seats are taken", func() bool {
		for answered < limit {
			c := h.caller()
			all = append(all, c)
			if !answers(c) {
				return false
			}
			answered++
		}
		return true
	})
	for range 3 {
		if c := h.caller(); answers(c) {
			answered++
		}
	}
	if answered != limit {
		t.Errorf("%d of %d connections were answered, want %d", answered, len(all), limit)
	}
	for _, c := range all {
		c.Close()
	}
	eventually(t, soon, "the daemon answers again", func() bool { _, err := h.try("domains", "--json"); return err == nil })
	c := h.caller()
	for range 20_000 { // requests with answers that are not read
		c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Write([]byte(`{"v":1,"id":1,"method":"accelerators"}` + "\n")); err != nil {
			break // the daemon has stopped reading
		}
	}
	h.domains()
	c.Close()
	h.settled(before)
	h.sound()
}

// A follower of events that doesn't read them misses some, and delays no other.
func TestSlowFollower(t *testing.T) {
	h := startHost(t, hostileDomains)
	before := h.quiet()
	slow := h.caller()
	if _, err := slow.Write([]byte(`{"v":1,"id":1,"method":"events"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	busy, err := control.Dial(h.controlSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	size, start := resident(t, h.daemon.Process.Pid), time.Now()
	const changes = 5000
	for i := range changes {
		credits := map[string]string{"credits": fmt.Sprint(100 + i%100)}
		if err := busy.Call(control.MethodSet, control.SetParams{Domain: "good", Settings: credits}, nil); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	t.Logf("%d changes in %v", changes, took)
	if took > time.Minute {
		t.Errorf("%d changes took %v", changes, took)
	}
	if grown := resident(t, h.daemon.Process.Pid) - size; grown > 64<<20 {
		t.Errorf("the daemon has grown by %d MiB", grown>>20)
	}
	brisk, err := control.Dial(h.controlSocket())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	brisk.Stream(control.MethodEvents, nil, func(v json.RawMessage, last bool) error {
		if seen++; seen == 100 {
			return errImpatient
		}
		if !bytes.Contains(v, []byte("credits")) && seen > 50 {
			return fmt.Errorf("event %s", v)
		}
		return nil
	})
	brisk.Close()
	if seen != 100 {
		t.Errorf("a follower saw %d events", seen)
	}
	slow.Close()
	busy.Close()
	h.settled(before)
	h.sound()
}

// A daemon with a log that is no longer read, as behind a stopped terminal, serves all the same.
func TestLogThatNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for full := make([]byte, 4096); ; {
		if _, err := w.Write(full); err != nil {
			break
		}
	}
	h := newHost(t, oneAccelerator+"[[domain]]\nname = \"web\"\n")
	h.stderr = w
	h.start()
	for range 10 {
		h.pegasus("reload")
		succeed(t, h.bench("web", "vectoradd", "--iterations", "1"))
	}
	if d, there := h.domains()["web"]; !there || d.Calls == 0 {
		t.Errorf("the domain is there: %v, with %d calls", there, d.Calls)
	}
}
