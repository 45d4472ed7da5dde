package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/backend/client"
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

// ask sends raw bytes, and returns the answer's status and body.
func ask(t *testing.T, c net.Conn, request string) (status int, body []byte, err error) {
	t.Helper()
	c.SetDeadline(time.Now().Add(soon))
	if _, err := io.WriteString(c, request); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// rawRequest returns an HTTP request with a body of JSON.
func rawRequest(method, path, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: pegasus\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
}

// A malformed request is answered with its error, and affects no other caller.
func TestControlNonsense(t *testing.T) {
	h := startHost(t, hostileDomains)
	before := h.quiet()
	set := func(body string) string { return rawRequest("PATCH", "/v1/domains/good", body) }
	for name, c := range map[string]struct {
		request string
		status  int
		code    string // empty: the answer is no problem of ours
	}{
		"no HTTP":        {"hello\r\n\r\n", 400, ""},
		"earlier":        {`{"v":1,"id":1,"method":"status"}` + "\r\n\r\n", 400, ""},
		"no JSON":        {set("hello"), 400, control.CodeMalformed},
		"no object":      {set("[1,2,3]"), 422, control.CodeInvalid},
		"empty":          {set(""), 400, control.CodeMalformed},
		"unknown key":    {set(`{"settings":{"credits":"1"},"colour":"red"}`), 422, control.CodeInvalid},
		"two":            {set(`{"settings":{"credits":"1"}}{}`), 400, control.CodeMalformed},
		"deep":           {set(strings.Repeat("[", 60000)), 400, control.CodeMalformed},
		"another type":   {set(`{"settings":{"credits":7}}`), 422, control.CodeInvalid},
		"another format": {strings.Replace(set(`settings: {credits: 7}`), "/json", "/yaml", 1), 415, control.CodeMalformed},
		"another path":   {rawRequest("GET", "/v1/launch", ""), 404, control.CodeOperation},
		"another method": {rawRequest("POST", "/v1/status", "{}"), 404, control.CodeOperation},
		"version":        {rawRequest("GET", "/v2/status", ""), 404, control.CodeOperation},
		"domain":         {rawRequest("PATCH", "/v1/domains/..%2Fx", `{"settings":{"credits":"1"}}`), 404, control.CodeNotFound},
		"hold":           {rawRequest("POST", "/v1/domains/..%2F..%2Fetc%2Fx/hold", "{}"), 422, control.CodeInvalid},
		"mode":           {rawRequest("DELETE", "/v1/domains/good?mode=now", ""), 422, control.CodeInvalid},
		"64 KiB":         {set(`{"settings":{"credits":"` + strings.Repeat("x", control.MaxRequest) + `"}}`), 413, control.CodeTooLarge},
		"long head":      {"GET /v1/" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\n\r\n", 431, ""},
	} {
		t.Run(name, func(t *testing.T) {
			caller := h.caller()
			defer caller.Close()
			status, body, err := ask(t, caller, c.request)
			var e control.Error
			if c.code == "" { // the daemon may close the connection before it has read all
				err = nil
			} else if err == nil {
				err = json.Unmarshal(body, &e)
			}
			if err != nil || status != c.status || e.Code != c.code || c.code != "" && e.Message == "" {
				t.Errorf("%v, %d, %s; want %d with the code %q", err, status, body, c.status, c.code)
			}
		})
	}
	part := h.caller()
	io.WriteString(part, "PATCH /v1/dom") // and silence
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
		status, _, err := ask(t, c, rawRequest("GET", "/v1/status", ""))
		return err == nil && status == http.StatusOK
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
		if _, err := io.WriteString(c, rawRequest("GET", "/v1/accelerators", "")); err != nil {
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
	if _, err := io.WriteString(slow, rawRequest("GET", "/v1/events", "")); err != nil {
		t.Fatal(err)
	}
	busy, err := client.Dial(h.controlSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	size, start := resident(t, h.daemon.Process.Pid), time.Now()
	const changes = 5000
	for i := range changes {
		credits := map[string]string{"credits": fmt.Sprint(100 + i%100)}
		if _, err := busy.Set(t.Context(), control.SetParams{Domain: "good", Settings: credits}); err != nil {
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
	seen := 0
	busy.Events(t.Context(), func(e control.Event) error {
		if seen++; seen == 100 {
			return errImpatient
		}
		if !strings.Contains(e.Text, "credits") && seen > 50 {
			return fmt.Errorf("event %+v", e)
		}
		return nil
	})
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
