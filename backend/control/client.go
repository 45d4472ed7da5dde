package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// Client is one connection to a daemon. It is not for concurrent use.
type Client struct {
	conn *net.UnixConn
	r    *bufio.Reader
	next uint64
}

// Dial connects to the control socket at path.
func Dial(path string) (*Client, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	return &Client{conn: c.(*net.UnixConn), r: bufio.NewReader(c)}, nil
}

// Close hangs up.
func (c *Client) Close() error { return c.conn.Close() }

// Server is who answers, as the kernel says.
func (c *Client) Server() (Peer, error) { return PeerOf(c.conn) }

// Call asks and waits for the answer, which goes into result unless that is nil.
// A daemon's refusal comes back as *Error.
func (c *Client) Call(method string, params, result any) error {
	return c.Stream(method, params, func(data json.RawMessage, last bool) error {
		if !last || result == nil {
			return nil
		}
		return json.Unmarshal(data, result)
	})
}

// Stream asks and calls each for every value of the answer, the last included.
func (c *Client) Stream(method string, params any, each func(v json.RawMessage, last bool) error) error {
	c.next++
	q := Request{Version: Version, ID: c.next, Method: method}
	if params != nil {
		data, err := json.Marshal(params)
		if err != nil {
			return err
		}
		q.Params = data
	}
	if err := encode(c.conn, q); err != nil {
		return fmt.Errorf("ask the daemon: %w", err)
	}
	for {
		a, err := c.answer()
		if err != nil {
			return err
		}
		if a.Error != nil {
			return a.Error
		}
		if err := each(a.Result, !a.More); err != nil || !a.More {
			return err
		}
	}
}

func (c *Client) answer() (Answer, error) {
	line, err := readLine(c.r, MaxAnswer)
	if err != nil {
		return Answer{}, fmt.Errorf("the daemon went away: %w", err)
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return Answer{}, fmt.Errorf("the daemon's answer: %w", err)
	}
	if a.Version != Version && a.Error == nil {
		return Answer{}, fmt.Errorf("the daemon speaks protocol version %d, this command %d", a.Version, Version)
	}
	return a, nil
}
