package api

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pegasus/backend/control"
	"pegasus/backend/events"
)

// The page is served over TCP only, and only if it is configured. Its files need no token; the operations do.
func TestPage(t *testing.T) {
	closed := newServer(t)
	config := *closed.opt.Config
	config.API.Listen, config.API.Page = "127.0.0.1:7070", true
	log := slog.New(slog.DiscardHandler)
	open := New(Options{Config: &config, Log: log, Journal: events.NewJournal(log)})
	remote := caller{Peer: control.Peer{UID: -1, Remote: "127.0.0.1:9"}, tcp: true}
	local := caller{Peer: control.Peer{UID: 0}}
	for _, c := range []struct {
		name           string
		s              *Server
		from           caller
		method, target string
		headers        string // "NAME: VALUE", one a line
		want           int
	}{
		{"the page", open, remote, "GET", "http://localhost:7070/", "", 200},
		{"a module", open, remote, "GET", "http://127.0.0.1:7070/page/main.js", "", 200},
		{"at IPv6", open, remote, "GET", "http://[::1]:7070/page/main.js", "", 200},
		{"an absent file", open, remote, "GET", "http://localhost:7070/page/none.js", "", 404},
		{"another path", open, remote, "GET", "http://localhost:7070/x", "", 404},
		{"over the socket", open, local, "GET", "http://pegasus/", "", 404},
		{"not configured", closed, remote, "GET", "http://localhost:7070/", "", 404},
		{"a module of a page that isn't configured", closed, remote, "GET", "http://localhost:7070/page/main.js", "", 404},
		{"an operation without a token", open, remote, "GET", "http://localhost:7070/v1/openapi.json", "", 401},
		{"an operation", open, remote, "GET", "http://localhost:7070/v1/openapi.json", "Authorization: Bearer vvvvvvvvvvvvvvvv", 200},
		{"another name for this host", open, remote, "GET", "http://rebound.example:7070/", "", 403},
		{"an operation by another name", open, remote, "GET", "http://rebound.example:7070/v1/openapi.json", "Authorization: Bearer vvvvvvvvvvvvvvvv", 403},
		{"another name without the page", closed, remote, "GET", "http://proxied.example/v1/openapi.json", "Authorization: Bearer vvvvvvvvvvvvvvvv", 200},
		{"a write of another site", open, remote, "POST", "http://localhost:7070/v1/reload", "Authorization: Bearer oooooooooooooooo\nOrigin: http://other.example", 403},
		{"a write that a browser marks", closed, remote, "POST", "http://localhost:7070/v1/reload", "Authorization: Bearer oooooooooooooooo\nSec-Fetch-Site: cross-site", 403},
	} {
		r := httptest.NewRequest(c.method, c.target, nil)
		for line := range strings.Lines(c.headers) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		c.s.handler.ServeHTTP(w, r.WithContext(contextOf(r, c.from)))
		if w.Code != c.want {
			t.Errorf("%s: %d %.200s, want %d", c.name, w.Code, w.Body, c.want)
		}
		if cors := w.Header().Get("Access-Control-Allow-Origin"); cors != "" {
			t.Errorf("%s: another site may read the answer: %q", c.name, cors)
		}
		if w.Code == http.StatusOK && strings.HasSuffix(c.target, ".js") && !strings.Contains(w.Header().Get("Content-Type"), "javascript") {
			t.Errorf("%s: type %q", c.name, w.Header().Get("Content-Type"))
		}
	}
}

// A line of the live view has only the differences from the line before.
func TestLiveChanges(t *testing.T) {
	sent := &hostState{}
	a := []control.Accelerator{{Name: "a0"}}
	d := func(credits ...int) (all []control.Domain) {
		for i, n := range credits {
			if n > 0 {
				all = append(all, control.Domain{Name: string(rune('p' + i)), PIDs: []int{i}, DomainShare: control.DomainShare{Credits: n}})
			}
		}
		return all
	}
	for i, step := range []struct {
		domains      []control.Domain
		accelerators int
		changed      string
		gone         string
	}{
		{d(1, 1), 1, "pq", ""}, {d(1, 1), 0, "", ""}, {d(1, 2), 0, "q", ""}, {d(0, 2, 1), 0, "r", "p"}, {d(3, 2, 1), 0, "p", ""},
	} {
		next := &hostState{accelerators: a, domains: step.domains}
		text, err := next.since(sent)
		var line control.Live
		if err := errors.Join(err, json.Unmarshal(text, &line)); err != nil || text[len(text)-1] != '\n' {
			t.Fatalf("step %d: %q, %v", i, text, err)
		}
		sent = next
		var changed string
		for _, d := range line.Domains {
			changed += d.Name
		}
		if len(line.Accelerators) != step.accelerators || changed != step.changed || strings.Join(line.Gone, "") != step.gone {
			t.Errorf("step %d: %+v, want %+v", i, line, step)
		}
	}
}
