package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// echo returns its request as the answer, after two more values for "stream".
type echo struct {
	idle    time.Duration // how long a connection may be idle, unless it is the default
	denied  string
	blocked chan struct{} // closed when a "block" was cancelled
}

func (e *echo) Authorize(_ Peer, method string) error {
	if method == e.denied {
		return Errorf(CodeDenied, "not %s", method)
	}
	return nil
}

func (e *echo) Handle(ctx context.Context, p Peer, q *Request, emit func(any) error) (any, error) {
	switch q.Method {
	case "echo":
		var s SetParams
		if err := q.Decode(&s); err != nil {
			return nil, err
		}
		return s, nil
	case "who":
		return p, nil
	case "stream":
		for i := range 2 {
			if err := emit(i); err != nil {
				return nil, err
			}
		}
		return 2, nil
	case "slow": // two values, with more time between them than a connection may be idle
		for i := range 2 {
			if err := emit(i); err != nil {
				return nil, err
			}
			select {
			case <-time.After(e.idle * 3 / 2):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return 2, nil
	case "block":
		<-ctx.Done()
		close(e.blocked)
		return nil, ctx.Err()
	case "break":
		return nil, errors.New("broken")
	}
	return nil, Errorf(CodeMethod, "there is no method %q", q.Method)
}

// serveEcho serves until the test ends and returns the socket's path.
func serveEcho(t *testing.T, e *echo) string {
	t.Helper()
	l := listen(t, shortDir(t), "")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	srv := &server{h: e, log: slog.New(slog.DiscardHandler), idle: cmp.Or(e.idle, idleLimit)}
	go func() { done <- srv.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dialTest(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestCall(t *testing.T) {
	c := dialTest(t, serveEcho(t, &echo{denied: "secret"}))
	want := SetParams{Domain: "web", Settings: map[string]string{"credits": "512"}}
	var got SetParams
	if err := c.Call("echo", want, &got); err != nil || got.Domain != "web" || got.Settings["credits"] != "512" {
		t.Errorf("echo: %+v, %v", got, err)
	}
	for method, want := range map[string]string{"secret": CodeDenied, "dance": CodeMethod, "break": CodeInternal} {
		if err := c.Call(method, nil, nil); code(err) != want {
			t.Errorf("%s: %v, want code %s", method, err, want)
		}
	}
	if err := c.Call("echo", map[string]any{"nonsense": 1}, nil); code(err) != CodeInvalid || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("unknown parameter: %v", err)
	}
}

func TestPeer(t *testing.T) {
	c := dialTest(t, serveEcho(t, &echo{}))
	var p Peer
	if err := c.Call("who", nil, &p); err != nil || p.PID != os.Getpid() || p.UID != os.Getuid() || p.GID != os.Getgid() {
		t.Errorf("%+v, %v", p, err)
	}
	if !p.Member(os.Getgid()) || p.Member(987654) {
		t.Errorf("groups of %+v", p)
	}
}

func TestStream(t *testing.T) {
	c := dialTest(t, serveEcho(t, &echo{}))
	var got []string
	err := c.Stream("stream", nil, func(v json.RawMessage, last bool) error {
		got = append(got, string(v))
		if last != (len(got) == 3) {
			t.Errorf("value %d: last = %v", len(got), last)
		}
		return nil
	})
	if err != nil || strings.Join(got, " ") != "0 1 2" {
		t.Errorf("%v, %v", got, err)
	}
}

// A connection without requests is closed, but not while an answer is under way.
func TestIdle(t *testing.T) {
	path := serveEcho(t, &echo{idle: 2 * time.Second}) // longer than the test's requests take
	c := dialTest(t, path)
	values := 0
	if err := c.Stream("slow", nil, func(json.RawMessage, bool) error { values++; return nil }); err != nil || values != 3 {
		t.Errorf("%d values, %v", values, err)
	}
	c.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("then, asked nothing: %v", err)
	}
}

// A call to a daemon that does not answer, because it is stopped, times out.
func TestNoAnswer(t *testing.T) {
	l := listen(t, shortDir(t), "")
	c := dialTest(t, l.Addr().String())
	c.patience = 20 * time.Millisecond
	if err := c.Call("who", nil, nil); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("%v", err)
	}
}

func TestHangUpCancels(t *testing.T) {
	e := &echo{blocked: make(chan struct{})}
	path := serveEcho(t, e)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, `{"v":1,"method":"block"}`+"\n")
	c.Close()
	select {
	case <-e.blocked:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler goes on")
	}
}

// An invalid request is answered with an error and ends the connection.
func TestNonsense(t *testing.T) {
	path := serveEcho(t, &echo{})
	for name, c := range map[string]struct{ line, code string }{
		"text":        {"hello", CodeMalformed},
		"two values":  {`{"v":1,"method":"who"} {}`, CodeMalformed},
		"other field": {`{"v":1,"method":"who","x":1}`, CodeMalformed},
		"version":     {`{"v":99,"id":7,"method":"who"}`, CodeVersion},
		"too long":    {strings.Repeat("x", MaxRequest), CodeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			go io.WriteString(conn, c.line+"\n")
			r := bufio.NewReader(conn)
			line, err := readLine(r, MaxAnswer)
			var a Answer
			if err != nil || json.Unmarshal(line, &a) != nil || a.Error == nil || a.Error.Code != c.code {
				t.Fatalf("answer %s, %v", line, err)
			}
			if c.code == CodeVersion && a.ID != 7 {
				t.Errorf("answer to request %d", a.ID)
			}
			if _, err := readLine(r, MaxAnswer); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":1,"method":"set","params":{"domain":"web","settings":{"credits":"1"}}}`))
	f.Add([]byte(`{"v":1,"method":"policy","params":{"name":"rr"}}`))
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, line []byte) {
		q, bad := DecodeRequest(line)
		if bad != nil {
			if bad.Code == "" || bad.Message == "" {
				t.Fatalf("an error without code or words: %+v", bad)
			}
			return
		}
		if q.Version != Version || len(line) >= MaxRequest {
			t.Fatalf("accepted %+v", q)
		}
		for _, p := range []any{new(SetParams), new(PolicyParams), new(DomainParams), new(HoldParams), new(ShutdownParams)} {
			if err := q.Decode(p); err != nil && code(err) != CodeInvalid {
				t.Fatalf("parameters: %v", err)
			}
		}
	})
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\nb"), 3)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit = min(max(limit, 1), 1<<16)
		r := bufio.NewReaderSize(bytes.NewReader(data), 16)
		for rest := data; ; {
			line, err := readLine(r, limit)
			if err != nil {
				return
			}
			if len(line) >= limit || bytes.IndexByte(line, '\n') >= 0 || !bytes.HasPrefix(rest, line) {
				t.Fatalf("line %q of %q", line, rest)
			}
			rest = rest[len(line)+1:]
		}
	})
}

func TestMakeRuntimeDir(t *testing.T) {
	base := shortDir(t)
	dir := filepath.Join(base, "a", "b")
	if err := MakeRuntimeDir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MakeRuntimeDir(dir, 0o700); err != nil {
		t.Errorf("a second time: %v", err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := MakeRuntimeDir(link, 0o700); err == nil {
		t.Error("a link was taken")
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 4242, -1); err != nil {
			t.Fatal(err)
		}
		if err := MakeRuntimeDir(dir, 0o700); err == nil {
			t.Error("somebody else's directory was taken")
		}
	}
}
