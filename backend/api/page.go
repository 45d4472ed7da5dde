package api

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"pegasus/backend/control"
	"pegasus/backend/web"
)

// addPage serves the page over TCP. Its files hold no data of the host and need no token.
func (s *Server) addPage(mux *http.ServeMux) {
	page := web.Handler()
	for _, pattern := range web.Patterns {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !callerOf(r.Context()).tcp {
				refuse(w, control.Errorf(control.CodeOperation, "the page is served over TCP, at [api] listen"))
				return
			}
			page.ServeHTTP(w, r)
		})
	}
}

// sameSite refuses requests over TCP that a page of another site makes a browser send: writes and, where the daemon
// serves its own page at a loopback address, requests by a name that another site can let point there.
func (s *Server) sameSite(next http.Handler) http.Handler {
	var site http.CrossOriginProtection
	loopback := false
	if s.opt.Config != nil && s.opt.Config.API.Page {
		at, err := netip.ParseAddrPort(s.opt.Config.API.Listen)
		loopback = err == nil && at.Addr().IsLoopback()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if callerOf(r.Context()).tcp {
			if err := site.Check(r); err != nil {
				refuse(w, control.Errorf(control.CodeDenied, "the request comes from a page of another site"))
				return
			}
			if loopback && !isLoopbackName(r.Host) {
				refuse(w, control.Errorf(control.CodeDenied, "the request is for the host %.100q: with [api] page, use localhost or a loopback address", r.Host))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopbackName reports whether a request's host, with or without a port, is localhost or a loopback address.
func isLoopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && at.IsLoopback()
}
