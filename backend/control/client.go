package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Client is one connection to a daemon. It is not safe for concurrent use.
type Client struct {
	conn     *net.UnixConn
	r        *bufio.Reader
	next     uint64
	patience time.Duration // of Call
}

// answerTime is how long a daemon may take to answer; no request makes it wait for anything.
const answerTime = 20 * time.Second

// Dial connects to the control socket at path, the only way to a daemon. It rejects a directory and a listener of
// another user with *Stranger, before it sends a byte.
func Dial(path string) (*Client, error) {
	if err := CheckOwner(filepath.Dir(path)); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn.(*net.UnixConn), r: bufio.NewReader(conn), patience: answerTime}
	peer, err := c.Server()
	if err == nil && !trusted(peer.UID) {
		err = &Stranger{What: "the listener at " + path, UID: peer.UID}
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to the daemon: %w", err)
	}
	return c, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Server returns the daemon's process, as the kernel reports it.
func (c *Client) Server() (Peer, error) { return PeerOf(c.conn) }

// Call sends a request and blocks until the answer, which it decodes into result unless that is nil. A daemon's refusal
// is returned as *Error. After any other error the connection is unusable.
func (c *Client) Call(method string, params, result any) error {
	c.conn.SetDeadline(time.Now().Add(c.patience))
	defer c.conn.SetDeadline(time.Time{})
	err := c.Stream(method, params, func(data json.RawMessage, last bool) error {
		if !last || result == nil {
			return nil
		}
		return json.Unmarshal(data, result)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p, _ := c.Server()
		return fmt.Errorf("the daemon, process %d, hasn't answered in %v; is it stopped? (%w)", p.PID, c.patience, err)
	}
	return err
}

// Stream sends a request and calls each for every value of the answer, including the last, without a time limit.
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
