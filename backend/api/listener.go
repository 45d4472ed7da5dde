package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"pegasus/backend/control"
)

// listener bounds the number of connections, and finds out their other ends.
type listener struct {
	net.Listener
	server *Server
	slots  chan struct{}
	full   bool          // the log has the refusal already
	few    chan struct{} // slots of users without a role, which would otherwise take all
}

// conn is a connection that occupies a slot of its listener.
type conn struct {
	net.Conn
	caller caller
	slots  chan struct{}
	free   sync.Once
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
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil { // such as EMFILE
			l.server.opt.Log.Warn("accept a connection to the API", "err", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		from, err := identify(c)
		if err != nil {
			l.server.opt.Log.Warn("identify a caller of the API", "err", err)
			c.Close()
			continue
		}
		slots := l.slots
		if role, _ := l.server.roleOf(from, ""); role == "" && !from.tcp {
			slots = l.few
		}
		select {
		case slots <- struct{}{}:
			l.full = false
			return &conn{Conn: c, caller: from, slots: slots}, nil
		default:
			if !from.tcp {
				refuseConnection(c, control.Errorf(control.CodeConflict,
					"the daemon has %d connections, as many as it serves: end some of the commands that follow it (domains --watch, events, trace)", cap(slots)))
			}
			c.Close()
			if !l.full {
				l.server.opt.Log.Warn("too many connections to the API", "limit", cap(slots))
			}
			l.full = true
		}
	}
}

// refuseConnection answers a connection before its request: a new connection's buffer has room.
func refuseConnection(c net.Conn, e *control.Error) {
	body, err := json.Marshal(e)
	if err != nil {
		return
	}
	c.SetWriteDeadline(time.Now().Add(time.Second))
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		e.Status, e.Title, e.ContentType(""), len(body), body)
}

// identify returns the other end of a connection.
func identify(c net.Conn) (caller, error) {
	if u, ok := c.(*net.UnixConn); ok {
		p, err := control.PeerOf(u)
		return caller{Peer: p}, err
	}
	return caller{Peer: control.Peer{UID: -1, GID: -1, Remote: c.RemoteAddr().String()}, tcp: true}, nil
}
