package fleet

import (
	"context"
	"embed"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"pegasus/backend/web"
)

//go:embed page
var files embed.FS

// Page serves the view to browsers, and as JSON at /fleet. It reads the cluster for a request, at most once in a while,
// however many requests there are.
type Page struct {
	Read  func(context.Context) (*Fleet, error)
	Least time.Duration // between two reads; a read that takes longer is followed by a pause of four times its time

	mu   sync.Mutex
	last *Fleet
	err  error
	next time.Time // when the last one is too old
}

// Handler returns the page's handler. It answers only requests for names of the loopback interface: a page of another
// site, whose name leads to that interface, gets no answer.
func (p *Page) Handler() http.Handler {
	pages := http.NewServeMux()
	for path, name := range map[string]string{"GET /{$}": "index.html", "GET /page/fleet.js": "fleet.js"} {
		data, err := files.ReadFile("page/" + name)
		if err != nil {
			panic(err) // a part of this program
		}
		pages.Handle(path, web.File(name, data))
	}
	for _, name := range []string{"style.css", "dom.js", "icon.svg"} {
		pages.Handle("GET /page/"+name, web.Handler())
	}
	pages.HandleFunc("GET /fleet", p.serve)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			http.Error(w, "the page is served at localhost only", http.StatusMisdirectedRequest)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || host == "[::1]" || ip != nil && ip.IsLoopback()
}

func (p *Page) serve(w http.ResponseWriter, r *http.Request) {
	f, err := p.view(r.Context())
	if err != nil {
		http.Error(w, plain(err.Error()), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	json.NewEncoder(w).Encode(f)
}

// view returns the latest view. Requests wait for a read that is under way.
func (p *Page) view(ctx context.Context) (*Fleet, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if begin := time.Now(); begin.After(p.next) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // for all that wait
		defer cancel()
		p.last, p.err = p.Read(ctx)
		p.next = time.Now().Add(max(p.Least, 4*time.Since(begin)))
	}
	return p.last, p.err
}
