package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func get(h http.Handler, host, path string) (int, http.Header, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	h.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Body)
	return w.Code, w.Header(), string(text)
}

// The page has all files that it names, with headers that keep other scripts and pages out.
func TestPage(t *testing.T) {
	p := Page{Read: func(context.Context) (*Fleet, error) { return View(fleet(t)), nil }, Least: time.Minute}
	h := p.Handler()
	for path, part := range map[string]string{"/": "/page/fleet.js", "/page/fleet.js": "./dom.js", "/page/dom.js": "export", "/page/style.css": "--card", "/page/icon.svg": "<svg"} {
		code, header, text := get(h, "localhost:8080", path)
		if code != http.StatusOK || !strings.Contains(text, part) || !strings.Contains(header.Get("Content-Security-Policy"), "script-src 'self'") || header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %d, %v, %.100s", path, code, header, text)
		}
	}
	code, _, text := get(h, "127.0.0.1", "/fleet")
	var f Fleet
	if err := json.Unmarshal([]byte(text), &f); code != http.StatusOK || err != nil || len(f.Accelerators) != 9 {
		t.Errorf("%d, %v, %.200s", code, err, text)
	}
	for _, path := range []string{"/page/main.js", "/page/", "/other", "/fleet/x"} {
		if code, _, _ := get(h, "localhost", path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// A page of another site whose name leads to the loopback interface gets no answer.
func TestPageHost(t *testing.T) {
	h := (&Page{Read: func(context.Context) (*Fleet, error) { return &Fleet{}, nil }}).Handler()
	for host, want := range map[string]int{"localhost": 200, "localhost:1": 200, "127.0.0.1:80": 200, "[::1]:80": 200, "[::1]": 200, "evil.example.com": 421, "evil.example.com:8080": 421, "10.0.0.1": 421, "": 421} {
		if code, _, _ := get(h, host, "/fleet"); code != want {
			t.Errorf("host %q: %d, want %d", host, code, want)
		}
	}
}

// However many requests there are, the cluster is read once in a while; an error is an answer, too.
func TestPageReads(t *testing.T) {
	var reads atomic.Int64
	p := Page{Least: time.Hour, Read: func(context.Context) (*Fleet, error) {
		reads.Add(1)
		return nil, errors.New("list slices: forbidden\x1b")
	}}
	h := p.Handler()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if code, _, text := get(h, "localhost", "/fleet"); code != http.StatusBadGateway || text != "list slices: forbidden?\n" {
				t.Errorf("%d, %q", code, text)
			}
		})
	}
	all.Wait()
	if n := reads.Load(); n != 1 {
		t.Errorf("%d reads, want 1", n)
	}
}
