package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"pegasus/backend/control"
)

const (
	// maxConnections bounds the callers' connections, and with them the daemon's resources.
	maxConnections = 256
	// idleLimit is how long a connection may go without a request before the server closes it.
	idleLimit = 5 * time.Minute
	// headLimit is how long the head of a request, and its body, may take to arrive.
	headLimit = 10 * time.Second
	// writeLimit is how long an answer may wait for its reader.
	writeLimit = 10 * time.Second
	// drainTime is how long running requests may take to be answered when the daemon ends.
	drainTime = 2 * time.Second
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
		OpenAPIPath:   "/v1/openapi",
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}
	mux := http.NewServeMux()
	api := humago.New(mux, config)
	api.UseMiddleware(s.authorize)
	s.addOperations(api)
	describe(api.OpenAPI())
	scrape := promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: writeLimit})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Authorize(peerOf(r.Context()), "metrics"); err != nil {
			refuse(w, asProblem(err))
			return
		}
		scrape.ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, control.Errorf(control.CodeOperation, "there is no operation %s %.200s; /v1/openapi.json lists them", r.Method, r.URL.Path))
	})
	return timed(mux), api.OpenAPI()
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
	w.Header().Set("Content-Type", e.ContentType(""))
	w.WriteHeader(e.Status)
	huma.DefaultJSONFormat.Marshal(w, e)
}

// authorize is the middleware that refuses callers without the role of the operation.
func (s *Server) authorize(ctx huma.Context, next func(huma.Context)) {
	if err := s.Authorize(peerOf(ctx.Context()), ctx.Operation().OperationID); err != nil {
		refuse(writerOf(ctx), asProblem(err))
		return
	}
	next(ctx)
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

// Huma's own refusals, of requests that do not fit the description, become errors of the API.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		var parts []string
		for _, err := range errs {
			var d huma.ErrorDetailer
			if errors.As(err, &d) {
				detail := d.ErrorDetail()
				parts = append(parts, strings.TrimPrefix(detail.Location+": ", ": ")+detail.Message)
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

// timed bounds the time for which an answer waits for its reader.
func timed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&timedWriter{w}, r) })
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

// Serve answers requests on l until ctx ends, closes l, and waits for the running handlers.
func (s *Server) Serve(ctx context.Context, l net.Listener, log *slog.Logger) error {
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headLimit, IdleTimeout: idleLimit, MaxHeaderBytes: maxHead,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, c.(*conn).peer)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
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
	err := srv.Serve(&listener{l, make(chan struct{}, maxConnections), log})
	if stop() { // ctx has not ended
		return err
	}
	<-drained
	return nil
}

type peerKey struct{}

// peerOf returns the process at the other end of a request.
func peerOf(ctx context.Context) control.Peer {
	p, _ := ctx.Value(peerKey{}).(control.Peer)
	return p
}

// listener bounds the number of connections, and finds out their peers.
type listener struct {
	net.Listener
	slots chan struct{}
	log   *slog.Logger
}

// conn is a connection that occupies a slot of its listener.
type conn struct {
	net.Conn
	peer  control.Peer
	slots chan struct{}
	free  sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.free.Do(func() { <-c.slots })
	return c.Conn.Close()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err // http.Server waits and tries again after a temporary error, such as EMFILE
		}
		peer, err := control.PeerOf(c.(*net.UnixConn))
		if err != nil {
			l.log.Warn("control socket", "err", err)
			c.Close()
			continue
		}
		select {
		case l.slots <- struct{}{}:
			return &conn{Conn: c, peer: peer, slots: l.slots}, nil
		default:
			c.Close()
			l.log.Warn("control socket: too many connections", "limit", maxConnections)
		}
	}
}
