package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
)

// serve answers requests with a handler until the test ends, and returns a client.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	l := listen(t, shortDir(t))
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return dialTest(t, l.Addr().String())
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

func refuse(w http.ResponseWriter, e *control.Error) {
	w.WriteHeader(e.Status)
	json.NewEncoder(w).Encode(e)
}

// An operation sends its parameters in the path, the query and the body.
func TestRequests(t *testing.T) {
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, body)
		w.Write([]byte("{}"))
	})
	ctx := t.Context()
	for _, q := range []struct {
		want string
		do   func() error
	}{
		{"GET /v1/status ", func() error { _, err := c.Status(ctx); return err }},
		{"GET /v1/domains/a%20b%2Fc ", func() error { _, err := c.Domain(ctx, "a b/c"); return err }},
		{`PATCH /v1/domains/web {"settings":{"credits":"512"}}`, func() error {
			_, err := c.Set(ctx, control.SetParams{Domain: "web", Settings: map[string]string{"credits": "512"}})
			return err
		}},
		{`PUT /v1/domains/web/lease?holder=pod+1 {"expires_ns":60}`, func() error {
			_, err := c.Renew(ctx, control.LeaseParams{Domain: "web", Holder: "pod 1", Expires: 60})
			return err
		}},
		{"DELETE /v1/domains/web?mode=end ", func() error {
			return c.Remove(ctx, control.RemoveParams{Domain: "web", Mode: control.RemoveEnd})
		}},
		{"POST /v1/shutdown?if_idle=true ", func() error { return c.Shutdown(ctx, control.ShutdownParams{IfIdle: true}) }},
	} {
		if err := q.do(); err != nil || got != q.want {
			t.Errorf("%q, %v; want %q", got, err, q.want)
		}
	}
}

// A name that a path can't have is refused.
func TestNames(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the daemon was called") })
	for _, name := range []string{"", ".", ".."} {
		var e *control.Error
		if err := c.Remove(t.Context(), control.RemoveParams{Domain: name}); !errors.As(err, &e) || e.Code != control.CodeInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A name that is too long for the daemon is refused as such, and is not sent.
func TestLongNames(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") })
	_, err := c.Domain(t.Context(), strings.Repeat("x", 70000))
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.CodeInvalid || len(err.Error()) > 200 || !strings.Contains(err.Error(), "at most 4096 are allowed") {
		t.Errorf("got %v", err)
	}
}

// A refusal is returned as *control.Error, also by a server that is no daemon.
func TestRefusals(t *testing.T) {
	answer := func(w http.ResponseWriter) { refuse(w, control.Errorf(control.CodeConflict, "in use")) }
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { answer(w) })
	var e *control.Error
	if _, err := c.Status(t.Context()); !errors.As(err, &e) || e.Code != control.CodeConflict || err.Error() != "in use" {
		t.Errorf("%v", err)
	}
	answer = func(w http.ResponseWriter) { http.Error(w, "not here", http.StatusNotFound) }
	if _, err := c.Status(t.Context()); !errors.As(err, &e) || e.Code != control.CodeNotFound || !strings.Contains(err.Error(), "not here") {
		t.Errorf("%v", err)
	}
	answer = func(w http.ResponseWriter) { io.WriteString(w, "no JSON") }
	if _, err := c.Status(t.Context()); err == nil || errors.As(err, &e) && e.Code == control.CodeNotFound && strings.Contains(err.Error(), "not here") {
		t.Errorf("%v", err)
	}
}

// A stream ends with the answer, with its problem, with an error of the reader, or with the context.
func TestStreams(t *testing.T) {
	last := ""
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"kind":"one"}`+"\n"+`{"kind":"two"}`+"\n")
		if last != "wait" {
			io.WriteString(w, last)
			return
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	events := func(each func(control.Event) error) (string, error) {
		seen := ""
		err := c.Events(t.Context(), func(e control.Event) error {
			seen += e.Kind + " "
			return each(e)
		})
		return seen, err
	}
	accept := func(control.Event) error { return nil }
	if seen, err := events(accept); seen != "one two " || err != nil {
		t.Errorf("%q, %v", seen, err)
	}
	last = `{"problem":{"status":409,"code":"conflict","detail":"too slow"}}` + "\n"
	var e *control.Error
	if seen, err := events(accept); seen != "one two " || !errors.As(err, &e) || e.Code != control.CodeConflict {
		t.Errorf("%q, %v", seen, err)
	}
	last = "wait"
	enough := errors.New("enough")
	if seen, err := events(func(control.Event) error { return enough }); seen != "one " || err != enough {
		t.Errorf("%q, %v", seen, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Events(ctx, func(control.Event) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A line of which only a part has arrived when a stream ends is dropped.
func TestHalfALine(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("{\"at\":1}\n{\"at\""))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var got []string
	err := c.Trace(ctx, control.TraceParams{}, func(record json.RawMessage) error {
		got = append(got, string(record))
		return nil
	})
	if err == nil || len(got) != 1 || got[0] != `{"at":1}` {
		t.Errorf("records %q, error %v; want one record and an error", got, err)
	}
}

// A call to a daemon that does not answer, because it is stopped, times out.
func TestNoAnswer(t *testing.T) {
	l := listen(t, shortDir(t))
	c := dialTest(t, l.Addr().String())
	c.patience = 20 * time.Millisecond
	if _, err := c.Status(t.Context()); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("%v", err)
	}
	c.patience = time.Minute
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Domains(soon); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "is it stopped?") {
		t.Errorf("at the caller's deadline: %v", err)
	}
}

// A daemon that ends in the middle is reported as such, and the next request reaches the next daemon.
func TestDaemonGone(t *testing.T) {
	l := listen(t, shortDir(t))
	c := dialTest(t, l.Addr().String())
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.Read(make([]byte, 1))
		conn.Close()
	}()
	if _, err := c.Create(t.Context(), control.CreateParams{Domain: "web"}); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"pid":7}`) })}
	defer srv.Close()
	go srv.Serve(l)
	if s, err := c.Status(t.Context()); err != nil || s.PID != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	srv.Close()
	var op *net.OpError
	if _, err := c.Status(t.Context()); !errors.As(err, &op) && !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}
