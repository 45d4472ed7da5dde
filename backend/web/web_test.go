package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

// Each file has its type and the headers that keep other scripts and other pages away.
func TestHeaders(t *testing.T) {
	entries, err := files.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/"}
	for _, e := range entries {
		paths = append(paths, "/page/"+e.Name())
	}
	for _, path := range paths {
		w := get(t, path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-cache", "ETag": `"`, "Content-Type": "",
		} {
			if got := w.Header().Get(name); w.Code != http.StatusOK || got == "" || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %d, %s is %q, want %q", path, w.Code, name, got, want)
			}
		}
		if got := w.Header().Get("Content-Security-Policy"); !strings.Contains(got, "frame-ancestors 'none'") || strings.Contains(got, "unsafe") || strings.Contains(got, "*") {
			t.Errorf("%s: %s", path, got)
		}
		if again := get(t, path, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d with %d bytes, want 304 without a body", path, again.Code, again.Body.Len())
		}
	}
	for _, path := range []string{"/page/", "/page/web.go", "/page/../web.go", "/x"} {
		if w := get(t, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, w.Code)
		}
	}
}

var (
	referenced = regexp.MustCompile(`(?:src|href)="(/[^"]*)"|from "\./([^"]*)"`)
	address    = regexp.MustCompile(`https?://[^\s"'` + "`" + `)]+`)
)

// The page refers to files that exist, and each file is referred to. It names no other host than Perfetto's, and the
// names of XML, and has neither scripts nor styles in its HTML.
func TestReferences(t *testing.T) {
	entries, err := files.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{"/page/index.html": true}
	for _, e := range entries {
		data, err := files.ReadFile("page/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range referenced.FindAllStringSubmatch(string(data), -1) {
			path := m[1]
			if path == "" {
				path = "/page/" + m[2]
			}
			used[path] = true
			if w := get(t, path); w.Code != http.StatusOK {
				t.Errorf("%s refers to %s: %d", e.Name(), path, w.Code)
			}
		}
		for _, at := range address.FindAllString(string(data), -1) {
			if at != "http://www.w3.org/2000/svg" && (at != "https://ui.perfetto.dev" || e.Name() != "perfetto.js") {
				t.Errorf("%s has the address %s", e.Name(), at)
			}
		}
		if strings.HasSuffix(e.Name(), ".js") && regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|localStorage|document\.cookie`).Match(data) {
			t.Errorf("%s makes markup of text, or keeps data for longer than the tab", e.Name())
		}
		if strings.HasSuffix(e.Name(), ".html") && regexp.MustCompile(`<style|style="|<script>|\son\w+="`).Match(data) {
			t.Errorf("%s has a script or style within", e.Name())
		}
	}
	for _, e := range entries {
		if !used["/page/"+e.Name()] {
			t.Errorf("no file refers to %s", e.Name())
		}
	}
}
