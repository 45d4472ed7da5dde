package xenstore

import (
	"context"
	"io"
	"sync"
	"testing"

	"pegasus/xenstore/wire"
)

// fed is a server that sends prepared bytes once it has received enough requests.
type fed struct {
	says   []byte
	least  int
	parser wire.Parser
	asked  chan struct{} // has one for each request
	enough chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (f *fed) Write(b []byte) (int, error) {
	f.parser.Feed(b)
	for _, ok, _ := f.parser.Next(); ok; _, ok, _ = f.parser.Next() {
		if f.least--; f.least >= 0 {
			f.asked <- struct{}{}
		}
		if f.least == 0 {
			close(f.enough)
		}
	}
	return len(b), nil
}

func (f *fed) Read(b []byte) (int, error) {
	select {
	case <-f.enough:
	case <-f.closed:
	}
	if len(f.says) == 0 {
		return 0, io.EOF
	}
	n := copy(b, f.says)
	f.says = f.says[n:]
	return n, nil
}

func (f *fed) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// FuzzClient runs a client against any bytes of a server: each call gets an answer or an error, and the held memory
// is bounded.
func FuzzClient(f *testing.F) {
	answer := func(typ wire.Type, id uint32, body string) []byte {
		return wire.Packet{Type: typ, ID: id, Body: []byte(body)}.Append(nil)
	}
	var all []byte
	for i, p := range []struct {
		typ  wire.Type
		body string
	}{
		{wire.Read, "value"}, {wire.Error, "E2BIG\x00"}, {wire.Watch, "OK\x00"}, {wire.TransactionStart, "77\x00"},
		{wire.GetPerms, "n0\x00r5\x00"}, {wire.IsDomainIntroduced, "T\x00"}, {wire.DirectoryPart, "1\x00a\x00\x00"},
	} {
		all = append(all, answer(p.typ, uint32(i+1), p.body)...)
	}
	f.Add(append(answer(wire.WatchEvent, 0, "/c\x001\x00"), all...), false)
	f.Add(append(answer(wire.Watch, 0, "OK\x00"), all...), true)
	f.Add(answer(wire.Error, 0, ""), true)
	f.Fuzz(func(t *testing.T, says []byte, device bool) {
		ctx := t.Context()
		asks := []func(c *Client){
			func(c *Client) { c.Read(ctx, "/a") },
			func(c *Client) { c.List(ctx, "/b") },
			func(c *Client) {
				if w, err := c.Watch(ctx, "/c"); err == nil {
					<-w.Ended()
					if held := len(w.Take()); held > pathsHeld {
						t.Errorf("%d events are held", held)
					}
				}
			},
			func(c *Client) {
				c.Update(ctx, func(tx *Tx) error { return tx.Write(ctx, "/d", nil) })
			},
			func(c *Client) { c.Perms(ctx, "/e") },
			func(c *Client) { c.IsIntroduced(ctx, 3) },
		}
		server := &fed{says: says, least: len(asks), asked: make(chan struct{}, len(asks)), enough: make(chan struct{}), closed: make(chan struct{})}
		if device { // which gets one request at a time
			server.least = 1
		}
		c, err := Dial(ctx, func(context.Context) (Link, error) { return Link{server, device}, nil })
		if err != nil {
			t.Fatal(err)
		}
		var ends sync.WaitGroup
		for _, ask := range asks {
			ends.Go(func() { ask(c) })
			if !device {
				<-server.asked
			}
		}
		ends.Wait()
		<-c.Done()
		c.Close()
	})
}
