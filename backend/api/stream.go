package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"pegasus/backend/control"
)

// stream sends the values of one answer, a line of JSON each.
type stream struct {
	ctx   huma.Context
	lines *json.Encoder
	begun bool
}

// begin sends the head of the answer. Errors after it end the answer with a line, instead of being its status.
func (s *stream) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	s.ctx.SetHeader("Content-Type", control.LinesType)
	s.ctx.SetStatus(http.StatusOK)
	return s.flush()
}

// send adds a value. flush sends it, at the latest.
func (s *stream) send(v any) error {
	if err := s.begin(); err != nil {
		return err
	}
	return s.lines.Encode(v)
}

// sendLine adds an encoded value that ends with a newline.
func (s *stream) sendLine(line []byte) error {
	_, err := s.ctx.BodyWriter().Write(line)
	return err
}

// flush sends the values that were added.
func (s *stream) flush() error { return http.NewResponseController(writerOf(s.ctx)).Flush() }

// end ends the answer, with an error if there is one.
func (s *stream) end(err error) {
	switch {
	case err == nil:
		s.begin()
	case s.begun:
		s.lines.Encode(control.Problem{Problem: asProblem(err)})
	default:
		e := asProblem(err)
		s.ctx.SetHeader("Content-Type", e.ContentType(""))
		s.ctx.SetStatus(e.Status)
		s.lines.Encode(e)
	}
}

// writerOf returns the writer of an answer.
func writerOf(ctx huma.Context) http.ResponseWriter { return ctx.BodyWriter().(http.ResponseWriter) }

// registerStream adds an operation with an answer of many values, each like line.
func registerStream[I any](api huma.API, op huma.Operation, line any, do func(ctx context.Context, in *I, out *stream) error) {
	schema := &huma.Schema{Description: "One event or decision of a scheduler"}
	if line != nil {
		t := reflect.TypeOf(line)
		schema = api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
	}
	op.Responses = map[string]*huma.Response{"200": {
		Description: "A stream without end: one JSON value in each line, and a line with the key `problem` if an error ends it",
		Content:     map[string]*huma.MediaType{control.LinesType: {Schema: schema}},
	}}
	huma.Register(api, op, func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			s := &stream{ctx: ctx, lines: json.NewEncoder(ctx.BodyWriter())}
			if ctx.Method() == http.MethodHead { // it has no lines, and would occupy its connection without end
				s.begin()
				return
			}
			s.end(do(ctx.Context(), in, s))
		}}, nil
	})
}

func (s *Server) addStreams(api huma.API) {
	registerStream(api, operation(viewer, http.MethodGet, "/v1/events", "follow-events", "Follow the events", "The latest events, then each as it happens."),
		control.Event{}, func(ctx context.Context, _ *none, out *stream) error { return s.sendEvents(ctx, out) })
	registerStream(api, operation(viewer, http.MethodGet, "/v1/timeline", "follow-timeline", "Follow the timeline",
		"The spans in which domains held engines, gates were open, and vCPUs ran. The first span is empty and marks the start. One client at a time."),
		control.Span{}, func(ctx context.Context, _ *none, out *stream) error { return s.timeline(ctx, out) })
	registerStream(api, operation(viewer, http.MethodGet, "/v1/live", "follow-live", "Follow the host",
		"All accelerators and domains, then each second those that have changed."),
		control.Live{}, func(ctx context.Context, _ *none, out *stream) error { return s.live(ctx, out) })
	type recording struct {
		OfAccelerator
		Used bool `query:"used" doc:"Only attachments and charges: enough for shares, not for a replay"`
	}
	registerStream(api, operation(operator, http.MethodGet, "/v1/trace", "follow-trace", "Record a scheduler",
		"The events and decisions of an accelerator's scheduler. The policy begins anew with the trace: balances start at zero."),
		nil, func(ctx context.Context, in *recording, out *stream) error {
			return s.trace(ctx, control.TraceParams{Accelerator: in.Accelerator, Used: in.Used}, out)
		})
}
