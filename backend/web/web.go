// Package web has the operator's page: the files that the daemon serves to browsers. The page's scripts call the API as
// other clients do.
//
// Callers: backend/api; cluster/fleet, whose page has the same style.
//
// Trust boundary: the files are part of the program and hold no data of the host, so that they need no token. Their
// headers keep a browser from running any other script beside them, and from showing the page in another one.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var files embed.FS

// Patterns are the paths of the page, for http.ServeMux.
var Patterns = []string{"GET /{$}", "GET /page/{file}"}

// policy permits the page's own files and its requests to the daemon, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page. It answers any other path with 404.
func Handler() http.Handler {
	entries, err := files.ReadDir("page")
	if err != nil {
		panic(err) // a part of this program
	}
	served := map[string]http.HandlerFunc{}
	for _, e := range entries {
		data, err := files.ReadFile("page/" + e.Name())
		if err != nil {
			panic(err)
		}
		served["/page/"+e.Name()] = File(e.Name(), data)
	}
	served["/"] = served["/page/index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve, ok := served[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		serve(w, r)
	})
}

// kinds are the media types of the files, whatever the host has configured.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// File returns a handler of one file of a page, with the headers of this one: the page's own files and requests, and
// nothing else. A browser keeps the file, and checks with each use that it is current.
func File(name string, data []byte) http.HandlerFunc {
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	kind := kinds[path.Ext(name)]
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin-allow-popups")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		if strings.Contains(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Write(data)
	}
}
