package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"pegasus/backend/control"
)

// Status returns the state of the daemon.
func (c *Client) Status(ctx context.Context) (s control.Status, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: []string{"status"}}, &s)
	return s, err
}

// Domains returns all domains.
func (c *Client) Domains(ctx context.Context) ([]control.Domain, error) {
	all := []control.Domain{}
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"domains"}}, &all)
	return all, err
}

// Domain returns one domain.
func (c *Client) Domain(ctx context.Context, name string) (d control.Domain, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: []string{"domains", name}}, &d)
	return d, err
}

// Config returns the configuration in force, and what a reload would change.
func (c *Client) Config(ctx context.Context) (g control.Config, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: []string{"config"}}, &g)
	return g, err
}

// Log returns the level of the daemon's log.
func (c *Client) Log(ctx context.Context) (l control.Log, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: []string{"log"}}, &l)
	return l, err
}

// SetLog changes the level of the log of the daemon and its workers.
func (c *Client) SetLog(ctx context.Context, q control.LogParams) (l control.Log, err error) {
	err = c.call(ctx, request{method: http.MethodPut, path: []string{"log"}, body: q}, &l)
	return l, err
}

// Explain returns the reasons why each domain runs or does not run now; with a name, of one.
func (c *Client) Explain(ctx context.Context, name string) ([]control.Explanation, error) {
	if name != "" {
		var e control.Explanation
		err := c.call(ctx, request{method: http.MethodGet, path: []string{"domains", name, "explanation"}}, &e)
		return []control.Explanation{e}, err
	}
	all := []control.Explanation{}
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"explanations"}}, &all)
	return all, err
}

// Accelerators returns all accelerators.
func (c *Client) Accelerators(ctx context.Context) ([]control.Accelerator, error) {
	all := []control.Accelerator{}
	err := c.call(ctx, request{method: http.MethodGet, path: []string{"accelerators"}}, &all)
	return all, err
}

// History returns the latest samples of a domain, or of all domains if it is empty.
func (c *Client) History(ctx context.Context, domain string) (h control.History, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: []string{"history"}, query: query("domain", domain)}, &h)
	return h, err
}

// Fits returns for each accelerator whether a domain would fit. It changes nothing.
func (c *Client) Fits(ctx context.Context, q control.FitParams) ([]control.Fit, error) {
	all := []control.Fit{}
	err := c.call(ctx, request{method: http.MethodPost, path: []string{"fits"}, body: q}, &all)
	return all, err
}

// SwitchPolicy switches the policy, the mode, or both, and returns the accelerators that it changed.
func (c *Client) SwitchPolicy(ctx context.Context, q control.PolicyParams) ([]control.Accelerator, error) {
	all := []control.Accelerator{}
	err := c.call(ctx, request{method: http.MethodPatch, path: []string{"accelerators"}, query: query("accelerator", q.Accelerator), body: q}, &all)
	return all, err
}

// Set changes settings of a domain.
func (c *Client) Set(ctx context.Context, q control.SetParams) (d control.Domain, err error) {
	err = c.call(ctx, request{method: http.MethodPatch, path: []string{"domains", q.Domain}, body: q}, &d)
	return d, err
}

// Reload makes the daemon read its configuration again.
func (c *Client) Reload(ctx context.Context) (r control.ReloadResult, err error) {
	err = c.call(ctx, request{method: http.MethodPost, path: []string{"reload"}}, &r)
	return r, err
}

// Hold keeps a domain for as long as this process runs.
func (c *Client) Hold(ctx context.Context, q control.HoldParams) (r control.HoldResult, err error) {
	err = c.call(ctx, request{method: http.MethodPost, path: []string{"domains", q.Domain, "hold"}, body: q}, &r)
	return r, err
}

// Create creates a domain with a lease, or adds the lease.
func (c *Client) Create(ctx context.Context, q control.CreateParams) (d control.Domain, err error) {
	err = c.call(ctx, request{method: http.MethodPost, path: []string{"domains"}, body: q}, &d)
	return d, err
}

// Renew gives a lease a new term.
func (c *Client) Renew(ctx context.Context, q control.LeaseParams) (d control.Domain, err error) {
	err = c.call(ctx, request{method: http.MethodPut, path: []string{"domains", q.Domain, "lease"}, query: query("holder", q.Holder), body: q}, &d)
	return d, err
}

// Release ends a lease.
func (c *Client) Release(ctx context.Context, q control.LeaseParams) error {
	return c.call(ctx, request{method: http.MethodDelete, path: []string{"domains", q.Domain, "lease"}, query: query("holder", q.Holder)}, nil)
}

// Remove removes a domain. In the modes RemoveWait and RemoveEnd it blocks until the domain has gone, without a time
// limit.
func (c *Client) Remove(ctx context.Context, q control.RemoveParams) error {
	r := request{method: http.MethodDelete, path: []string{"domains", q.Domain}, query: query("mode", q.Mode)}
	if q.Mode == control.RemoveWait || q.Mode == control.RemoveEnd {
		return c.answer(ctx, r, nil)
	}
	return c.call(ctx, r, nil)
}

// Shutdown ends the daemon.
func (c *Client) Shutdown(ctx context.Context, q control.ShutdownParams) error {
	r := request{method: http.MethodPost, path: []string{"shutdown"}}
	if q.IfIdle {
		r.query = query("if_idle", "true")
	}
	return c.call(ctx, r, nil)
}

// Events calls each for the latest events, and for each that follows, until ctx ends or each returns an error.
func (c *Client) Events(ctx context.Context, each func(control.Event) error) error {
	return follow(c, ctx, request{method: http.MethodGet, path: []string{"events"}}, each)
}

// Live calls each for the state of the host and, each second, for its changes, until ctx ends or each returns an error.
func (c *Client) Live(ctx context.Context, each func(control.Live) error) error {
	return follow(c, ctx, request{method: http.MethodGet, path: []string{"live"}}, each)
}

// Timeline calls each for the spans of the timeline, until ctx ends or each returns an error. The first span is empty
// and marks the start.
func (c *Client) Timeline(ctx context.Context, each func(control.Span) error) error {
	return follow(c, ctx, request{method: http.MethodGet, path: []string{"timeline"}}, each)
}

// Trace calls each for the records of a scheduler (policies.Record), until ctx ends or each returns an error. The
// record is valid until each returns.
func (c *Client) Trace(ctx context.Context, q control.TraceParams, each func(record json.RawMessage) error) error {
	r := request{method: http.MethodGet, path: []string{"trace"}, query: query("accelerator", q.Accelerator)}
	if q.Used {
		r.query.Set("used", "true")
	}
	return c.stream(ctx, r, each)
}

// follow decodes the lines of a stream.
func follow[T any](c *Client, ctx context.Context, q request, each func(T) error) error {
	return c.stream(ctx, q, func(line json.RawMessage) error {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		return each(v)
	})
}

// query returns a query of one parameter, or of none if the value is empty.
func query(key, value string) url.Values {
	v := url.Values{}
	if value != "" {
		v.Set(key, value)
	}
	return v
}
