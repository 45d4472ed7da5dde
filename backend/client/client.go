// Package client calls the API of a daemon (backend/api).
//
// Callers: the pegasus command, the hubs of virtual machines, tools and tests; other programs may import it.
//
// Trust boundary: Dial rejects a daemon of another user than root and the caller, before it sends a byte. Answers are
// bounded in size and, unless they are streams, in time.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"pegasus/backend/control"
)

// Client calls one daemon. It is safe for concurrent use.
type Client struct {
	path     string
	http     *http.Client
	patience time.Duration // of calls

	mu     sync.Mutex
	first  net.Conn     // of Dial, for the first request
	server control.Peer // the daemon of the latest connection
}

// ErrGone is the error for a connection that ended before the answer did.
var ErrGone = errors.New("the daemon went away")

// answerTime is how long a daemon may take to answer; no request but remove makes it wait for anything.
const answerTime = 20 * time.Second

// maxTarget is the limit of a request's path and query, below the daemon's limit of a request's head.
const maxTarget = 4 << 10

// dialTime is how long a connection may take to be made.
const dialTime = 5 * time.Second

// Dial connects to the control socket at path. It rejects a directory and a listener of another user with
// *control.Stranger.
func Dial(path string) (*Client, error) {
	c := &Client{path: path, patience: answerTime}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connection(ctx) },
		DisableCompression: true,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	conn, err := c.dial(context.Background())
	if err != nil {
		return nil, err
	}
	c.first = conn
	return c, nil
}

// connection returns a connection for the transport.
func (c *Client) connection(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	conn := c.first
	c.first = nil
	c.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	return c.dial(ctx)
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	if err := control.CheckOwner(filepath.Dir(c.path)); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialTime}
	conn, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, err
	}
	peer, err := control.PeerOf(conn.(*net.UnixConn))
	if err == nil && !control.Trusted(peer.UID) {
		err = &control.Stranger{What: "the listener at " + c.path, UID: peer.UID}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to the daemon: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = peer
	return conn, nil
}

// Close closes the idle connections.
func (c *Client) Close() error {
	c.mu.Lock()
	first := c.first
	c.first = nil
	c.mu.Unlock()
	if first != nil {
		first.Close()
	}
	c.http.CloseIdleConnections()
	return nil
}

// Server returns the process of the daemon, as the kernel reported it at the latest connection.
func (c *Client) Server() control.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// request is one operation with its parameters.
type request struct {
	method string
	path   []string // elements below the version
	query  url.Values
	body   any // nil: none
}

func (q *request) url() string {
	path := fmt.Sprintf("http://pegasus/v%d", control.Version)
	for _, e := range q.path {
		path += "/" + url.PathEscape(e)
	}
	if len(q.query) > 0 {
		path += "?" + q.query.Encode()
	}
	return path
}

// call sends a request and decodes the answer into result, unless that is nil. It gives up after the client's patience,
// or at ctx's deadline.
func (c *Client) call(ctx context.Context, q request, result any) error {
	start := time.Now()
	bounded, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	err := c.answer(bounded, q, result)
	if err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the daemon, process %d, hasn't answered in %v; is it stopped? (%w)", c.Server().PID, time.Since(start).Round(time.Second/10), os.ErrDeadlineExceeded)
	}
	return err
}

// answer is call without a time limit.
func (c *Client) answer(ctx context.Context, q request, result any) error {
	resp, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, control.MaxAnswer+1))
	switch {
	case err != nil:
		return gone(err)
	case len(data) > control.MaxAnswer:
		return fmt.Errorf("the daemon's answer is longer than %d bytes", control.MaxAnswer)
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(data, result); err != nil {
		return fmt.Errorf("the daemon's answer: %w", err)
	}
	return nil
}

// stream sends a request and calls each for every line of the answer. It ends with the answer, with an error of each,
// or with ctx.
func (c *Client) stream(ctx context.Context, q request, each func(line json.RawMessage) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the daemon stops sending
	resp, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), control.MaxAnswer)
	lines.Split(wholeLines)
	for lines.Scan() {
		line := lines.Bytes()
		if bytes.HasPrefix(line, []byte(`{"problem":`)) {
			var p control.Problem
			if err := json.Unmarshal(line, &p); err == nil && p.Problem != nil {
				return p.Problem
			}
		}
		if err := each(line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return gone(err)
	}
	return nil
}

// wholeLines is bufio.ScanLines without the last line if that has no end: the stream was cut there.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// send sends a request and returns the answer, if it is no error.
func (c *Client) send(ctx context.Context, q request) (*http.Response, error) {
	for _, e := range q.path {
		if e == "" || e == "." || e == ".." { // no element of a path
			return nil, control.Errorf(control.CodeInvalid, "name %q: no domain can be called so", e)
		}
	}
	var body io.Reader
	if q.body != nil {
		data, err := json.Marshal(q.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	target := q.url()
	if len(target) > maxTarget { // the daemon would end the connection
		return nil, control.Errorf(control.CodeInvalid, "request %.48s…: its path has %d bytes, at most %d are allowed", target[len("http://pegasus"):], len(target), maxTarget)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		err = gone(err)
		if errors.Is(err, ErrGone) {
			if refused := c.refusal(ctx); refused != nil {
				return nil, refused
			}
		}
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, errorOf(resp)
}

// errorOf returns the error of an answer.
func errorOf(resp *http.Response) error {
	e := new(control.Error)
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return gone(err)
	}
	if json.Unmarshal(data, e) != nil || e.Code == "" {
		e = control.OfStatus(resp.StatusCode, fmt.Sprintf("the daemon answered %s: %.200s", resp.Status, data))
	}
	return e
}

// refusalTime is how long refusal waits for the answer of a daemon with too many connections.
const refusalTime = 50 * time.Millisecond

// refusal returns the error with which the daemon refuses connections, if it does. It answers such a connection before
// the request, which an HTTP client takes for a broken one.
func (c *Client) refusal(ctx context.Context) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(refusalTime))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	return errorOf(resp)
}

// gone describes the loss of the connection.
func gone(err error) error {
	var u *url.Error
	if errors.As(err, &u) { // its text has the method and a made-up host
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, new(*control.Stranger)) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if strings.Contains(err.Error(), "malformed HTTP") {
		return fmt.Errorf("the daemon speaks another protocol: pegasus and pegasusd should be of one release (%w)", err)
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}
