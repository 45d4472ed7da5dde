package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/configs"
)

// newServer returns a server with tokens, and without guests: its operations are not called.
func newServer(t *testing.T) *Server {
	t.Helper()
	config, dir := configs.Default(), t.TempDir()
	for role, path := range map[string]*string{viewer: &config.API.ViewToken, operator: &config.API.OperateToken} {
		*path = filepath.Join(dir, role)
		if err := os.WriteFile(*path, []byte(strings.Repeat(role[:1], shortestToken)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config.Daemon.ControlGroup = "54321"
	log := slog.New(slog.DiscardHandler)
	return New(Options{Config: config, Log: log, Journal: events.NewJournal(log)})
}

// A caller has the role of its user, its groups or its token, and no operation of another role.
func TestRoles(t *testing.T) {
	s := newServer(t)
	user := func(uid, gid int) caller { return caller{Peer: control.Peer{UID: uid, GID: gid}} }
	remote := caller{Peer: control.Peer{UID: -1, Remote: "192.0.2.1:7"}, tcp: true}
	for _, c := range []struct {
		name          string
		from          caller
		header        string
		view, operate string // codes of the errors
	}{
		{"root", user(0, 0), "", "", ""},
		{"the daemon's user", user(os.Geteuid(), 7), "", "", ""},
		{"a member of the control group", user(4242, 54321), "", "", ""},
		{"another user", user(4242, 4242), "", control.CodeDenied, control.CodeDenied},
		{"another user with a token", user(4242, 4242), "Bearer oooooooooooooooo", control.CodeDenied, control.CodeDenied},
		{"no token", remote, "", control.CodeUnauthenticated, control.CodeUnauthenticated},
		{"an empty token", remote, "Bearer ", control.CodeUnauthenticated, control.CodeUnauthenticated},
		{"a wrong token", remote, "Bearer vvvvvvvvvvvvvvvw", control.CodeUnauthenticated, control.CodeUnauthenticated},
		{"a part of a token", remote, "Bearer vvvvvvvvvvvvvvv", control.CodeUnauthenticated, control.CodeUnauthenticated},
		{"another scheme", remote, "Basic oooooooooooooooo", control.CodeUnauthenticated, control.CodeUnauthenticated},
		{"the scheme in lower case", remote, "bearer vvvvvvvvvvvvvvvv", "", control.CodeDenied},
		{"spaces before the token", remote, "Bearer  oooooooooooooooo", "", ""},
		{"a scheme that begins alike", remote, "Bearers oooooooooooooooo", control.CodeUnauthenticated, control.CodeUnauthenticated},
		{"the token to view", remote, "Bearer vvvvvvvvvvvvvvvv", "", control.CodeDenied},
		{"the token to operate", remote, "Bearer oooooooooooooooo", "", ""},
	} {
		for role, want := range map[string]string{viewer: c.view, operator: c.operate} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Authorization", c.header)
			_, err := s.authorize(contextOf(r, c.from), c.header, role)
			var e *control.Error
			errors.As(err, &e)
			if got := codeOf(e); got != want {
				t.Errorf("%s, to %s: %q (%v), want %q", c.name, role, got, err, want)
			}
		}
	}
}

// contextOf returns a request's context with the other end of its connection.
func contextOf(r *http.Request, from caller) context.Context {
	return context.WithValue(r.Context(), callerKey{}, from)
}

func codeOf(e *control.Error) string {
	if e == nil {
		return ""
	}
	return e.Code
}

// A token is read anew for each request, and not from a file that every user may read.
func TestTokenFiles(t *testing.T) {
	s := newServer(t)
	path := s.opt.Config.API.OperateToken
	for _, c := range []struct {
		text string
		mode os.FileMode
		role string
	}{
		{"0123456789abcdef", 0o600, operator},
		{"0123456789abcdef", 0o640, operator},
		{"0123456789abcdef", 0o644, ""},
		{"0123456789abcde", 0o600, ""},
		{"0123456789 abcdef", 0o600, ""},
		{"", 0o600, ""},
	} {
		if err := errors.Join(os.WriteFile(path, []byte(c.text), c.mode), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		role, _ := s.roleOfToken("Bearer " + c.text)
		if err := s.checkTCP(); role != c.role || (err == nil) != (role != "") {
			t.Errorf("%q with mode %#o: %q, %v", c.text, c.mode, role, err)
		}
	}
}

// A token of both roles is refused at the start, and gives the lesser one if the files become alike later.
func TestTokenOfTwoRoles(t *testing.T) {
	s := newServer(t)
	if err := os.WriteFile(s.opt.Config.API.OperateToken, []byte("vvvvvvvvvvvvvvvv"), 0o600); err != nil { // without the newline
		t.Fatal(err)
	}
	if err := s.checkTCP(); err == nil || !strings.Contains(err.Error(), "must differ") {
		t.Errorf("got %v, want an error", err)
	}
	if role, err := s.roleOfToken("Bearer vvvvvvvvvvvvvvvv"); role != viewer || err != nil {
		t.Errorf("got the role %q, %v; want %q", role, err, viewer)
	}
}

// Every operation has a role, and refuses a caller without it before its parameters are checked.
func TestOperationsAreGuarded(t *testing.T) {
	s := newServer(t)
	for path, item := range s.spec.Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if op == nil {
				continue
			}
			if role := op.Metadata["role"]; role != viewer && role != operator || method != "GET" && path != "/v1/fits" && role != operator { // fits changes nothing
				t.Errorf("%s %s has the role %v", method, path, role)
			}
			r := httptest.NewRequest(method, strings.ReplaceAll(path, "{domain}", "web"), strings.NewReader("{"))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r.WithContext(contextOf(r, caller{Peer: control.Peer{UID: 4242, GID: 4242}})))
			if w.Code != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
	}
}
