package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"

	"pegasus/backend/control"
	"pegasus/backend/metrics"
)

const (
	// maxConnections bounds the connections of each listener, and with them the daemon's resources.
	maxConnections = 256
	// maxStrangers bounds the connections of users without a role, if the socket's mode admits them.
	maxStrangers = 16
	// idleLimit is how long a connection may go without a request before the server closes it.
	idleLimit = 5 * time.Minute
	// headLimit is how long the head of a request, and its body, may take to arrive.
	headLimit = 10 * time.Second
	// writeLimit is how long an answer may wait for its reader.
	writeLimit = 10 * time.Second
	// drainTime is how long running requests may take to be answered when the daemon ends.
	drainTime = 250 * time.Millisecond
	maxHead   = 16 << 10 // bytes of a request's head
)

// newAPI returns the handler of all requests, and the API's description.
func (s *Server) newAPI() (http.Handler, *huma.OpenAPI) {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "Pegasus", Version: fmt.Sprint(control.Version),
				Description: "The API of pegasusd, on its control socket. Times are in nanoseconds, memory is in bytes."},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "On the control socket the kernel's credentials of the caller count instead."}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}
	mux := http.NewServeMux()
	api := humago.New(mux, config)
	api.UseMiddleware(s.guard)
	s.addOperations(api)
	describe(api.OpenAPI())
	document, err := json.Marshal(api.OpenAPI())
	if err != nil {
		panic(err) // of types that are part of this program
	}
	mux.Handle("GET /v1/openapi.json", s.guarded(viewer, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		w.Write(document)
	})))
	mux.Handle("GET /metrics", s.guarded(viewer, metrics.New(s.guests, s.opt.Journal.Counts)))
	if s.opt.Config != nil && s.opt.Config.API.Page {
		s.addPage(mux)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, control.Errorf(control.CodeOperation, "there is no operation %s %.200s; /v1/openapi.json lists them", r.Method, r.URL.Path))
	})
	return s.tracked(timed(s.sameSite(mux))), api.OpenAPI()
}

// Description returns the API's description.
func Description() *huma.OpenAPI { return New(Options{}).spec }

// describe adds the comments of the Go types to a description.
func describe(spec *huma.OpenAPI) {
	for name, schema := range spec.Components.Schemas.Map() {
		schema.Description = cmp.Or(schema.Description, descriptions[name])
		for field, s := range schema.Properties {
			if s.Ref == "" {
				s.Description = cmp.Or(s.Description, descriptions[name+"."+field])
			}
		}
	}
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, e *control.Error) {
	if e.Code == control.CodeUnauthenticated || e.Code == control.CodeDenied {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Type", e.ContentType(""))
	w.WriteHeader(e.Status)
	huma.DefaultJSONFormat.Marshal(w, e)
}

// asProblem returns err as an error of the API; nil stays nil.
func asProblem(err error) *control.Error {
	if err == nil {
		return nil
	}
	var e *control.Error
	if !errors.As(err, &e) {
		e = control.Errorf(control.CodeInternal, "%v", err)
	}
	return e
}

// Huma's own refusals, of requests that do not fit the description, become errors of the API. Names of fields are
// spelled as described.
func init() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		var parts []string
		for _, err := range errs {
			var d huma.ErrorDetailer
			if errors.As(err, &d) {
				detail := d.ErrorDetail()
				parts = append(parts, strings.TrimPrefix(detail.Location+": ", ": ")+detail.Message+remedyOf(detail.Message))
			} else if err != nil {
				parts = append(parts, err.Error())
			}
		}
		if len(parts) > 0 {
			message += ": " + strings.Join(parts, "; ")
		}
		return control.OfStatus(status, message)
	}
}

// remedyOf returns the remedy for one of Huma's refusals; empty: the message has it.
func remedyOf(message string) string {
	switch {
	case strings.HasPrefix(message, huma.ErrUnknownContentType.Error()):
		return "; send the header `Content-Type: application/json`"
	case message == validation.MsgUnexpectedProperty:
		return "; /v1/openapi.json has the fields of the body"
	}
	return ""
}

// tracked keeps Serve from returning while a request is handled, and logs a handler's panic.
func (s *Server) tracked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.RLock()
		defer s.running.RUnlock()
		if s.ended {
			refuse(w, control.Errorf(control.CodeEnding, "the daemon is about to end"))
			return
		}
		defer func() {
			if p := recover(); p != nil {
				s.opt.Log.Error("a request's handler failed", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				panic(http.ErrAbortHandler)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// timed bounds the time for which an answer waits for its reader.
func timed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // the server reads a body to its end, even one that no operation has read
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(headLimit))
		}
		t := &timedWriter{w}
		t.extend()
		defer t.extend() // for the end of the answer
		h.ServeHTTP(t, r)
	})
}

type timedWriter struct{ http.ResponseWriter }

func (w *timedWriter) extend() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeLimit))
}

func (w *timedWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *timedWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Serve answers requests on the listeners until ctx ends, closes them, and waits for the running handlers.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var protocols http.Protocols
	protocols.SetHTTP1(true) // with HTTP/2, write deadlines would end idle streams, and a connection would be many requests
	srv := &http.Server{
		Handler: s.handler, Protocols: &protocols,
		ReadHeaderTimeout: headLimit, IdleTimeout: idleLimit, MaxHeaderBytes: maxHead,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, callerKey{}, c.(*conn).caller)
		},
		ErrorLog: slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelDebug),
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		soon, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		if srv.Shutdown(soon) != nil {
			srv.Close()
		}
	})
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		bounded := &listener{Listener: l, server: s, slots: make(chan struct{}, maxConnections), few: make(chan struct{}, maxStrangers)}
		go func() {
			if _, ok := l.(*net.TCPListener); ok && s.opt.Config.API.Certificate != "" {
				failed <- srv.ServeTLS(bounded, s.opt.Config.API.Certificate, s.opt.Config.API.Key)
			} else {
				failed <- srv.Serve(bounded)
			}
		}()
	}
	err := <-failed
	if stop() { // ctx has not ended
		cancel()
		srv.Close()
	} else {
		<-drained
		err = nil
	}
	for range len(listeners) - 1 {
		<-failed
	}
	s.running.Lock() // waits for the handlers
	s.ended = true
	s.running.Unlock()
	return err
}
