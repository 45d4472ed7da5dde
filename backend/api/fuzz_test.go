package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/configs"
)

// FuzzRequests sends arbitrary requests: every refusal is a problem with a code and a text, and a user without a role
// changes nothing.
func FuzzRequests(f *testing.F) {
	for _, seed := range []struct{ method, path, body string }{
		{"GET", "/v1/domains", ""},
		{"GET", "/v1/events", ""},
		{"GET", "/metrics", ""},
		{"POST", "/v1/domains", `{"domain":"web","settings":{"memory":"1GiB"},"holder":"pod-1","expires_ns":60000000000}`},
		{"PATCH", "/v1/domains/web", `{"settings":{"credits":"512"}}`},
		{"PATCH", "/v1/accelerators?accelerator=soft0", `{"name":"rr"}`},
		{"PUT", "/v1/domains/web/lease?holder=pod-1", `{"expires_ns":-1}`},
		{"DELETE", "/v1/domains/web?mode=end", ""},
		{"POST", "/v1/domains/web/hold", `{"credits":3}`},
		{"GET", "/v1/trace?used=1e99", `[[[[`},
	} {
		f.Add(seed.method, seed.path, seed.body)
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	config, log := configs.Default(), slog.New(slog.DiscardHandler)
	journal := events.NewJournal(log)
	r := registry(f, config, "", dir, journal, log)
	ctx, end := context.WithCancel(context.Background())
	f.Cleanup(end)
	r.Start(ctx, end)
	reload := func(*control.Peer) (control.ReloadResult, error) { return control.ReloadResult{}, nil }
	s := New(Options{Config: config, RuntimeDir: dir, Guests: r.Requests(), Reload: reload, Journal: journal, Log: log})
	send := func(t *testing.T, from control.Peer, method, path, body string) *httptest.ResponseRecorder {
		q := &http.Request{Method: method, URL: &url.URL{}, Header: http.Header{"Content-Type": {"application/json"}}, ProtoMajor: 1, ProtoMinor: 1}
		if at, err := url.ParseRequestURI(path); err == nil {
			q.URL = at
		}
		q.Body = http.MaxBytesReader(nil, readCloser{strings.NewReader(body)}, 1<<20)
		soon, cancel := context.WithTimeout(ctx, 5*time.Millisecond) // ends streams
		defer cancel()
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, q.WithContext(context.WithValue(soon, callerKey{}, caller{Peer: from})))
		if w.Code >= 400 {
			var e control.Error
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Code == "" || e.Message == "" || e.Status != w.Code {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
		return w
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.Contains(path, "shutdown") {
			return
		}
		state := func() string {
			all, err := r.Requests().Domains(control.DomainParams{})
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, d := range all {
				text += d.Name + d.Owner
			}
			return text
		}
		before := state()
		send(t, control.Peer{UID: 4242, GID: 54322}, method, path, body)
		if after := state(); after != before {
			t.Errorf("a user without a role has changed %q to %q", before, after)
		}
		send(t, control.Peer{PID: os.Getpid()}, method, path, body)
	})
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
