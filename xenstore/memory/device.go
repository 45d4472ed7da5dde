package memory

import (
	"context"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

// Device simulates a kernel's device in front of a server: it accepts one whole packet a Write, and no other before
// it has answered; sets watches itself, and rejects one by the Write's error; and tracks its own transactions. An old
// one answers requests for watches without their id.
func Device(dial xenstore.Dialer, old bool) xenstore.Dialer {
	return func(ctx context.Context) (xenstore.Link, error) {
		link, err := dial(ctx)
		if err != nil {
			return link, err
		}
		d := &device{
			server: link, old: old, asked: map[uint32]question{},
			txs: map[uint32]bool{}, watches: map[string]wire.Packet{},
		}
		d.came = sync.NewCond(&d.mu)
		go d.hear()
		return xenstore.Link{ReadWriteCloser: d, Device: true}, nil
	}
}

type device struct {
	server io.ReadWriteCloser
	old    bool
	writes sync.Mutex // one Write at a time; before mu

	mu      sync.Mutex
	came    *sync.Cond
	out     []byte
	ended   bool
	last    uint32
	asked   map[uint32]question
	txs     map[uint32]bool
	watches map[string]wire.Packet // the requests, by our own token
}

// question is a request in flight. Its answer goes to the reader, or to answer.
type question struct {
	wire.Packet
	answer chan wire.Packet
}

// Read returns received bytes.
func (d *device) Read(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.out) == 0 && !d.ended {
		d.came.Wait()
	}
	if len(d.out) == 0 {
		return 0, os.ErrClosed
	}
	n := copy(b, d.out)
	d.out = d.out[n:]
	return n, nil
}

// Write accepts a packet.
func (d *device) Write(b []byte) (int, error) {
	d.writes.Lock()
	defer d.writes.Unlock()
	var parser wire.Parser
	parser.Feed(b)
	p, whole, err := parser.Next()
	if len(b) > 4096 || !whole || err != nil || len(b) != wire.HeaderBytes+len(p.Body) {
		return 0, syscall.EINVAL
	}
	if d.busy() { // a kernel would mix up the packets
		return 0, syscall.EBUSY
	}
	switch p.Type {
	case wire.Watch:
		err = d.watch(p)
	case wire.Unwatch:
		err = d.unwatch(p)
	default:
		err = d.pass(p)
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// busy reports whether a packet has no answer yet.
func (d *device) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asked) > 0
}

// ask sends a request under an id of our own.
func (d *device) ask(q question) error {
	d.mu.Lock()
	d.last++
	id := d.last
	d.asked[id] = q
	d.mu.Unlock()
	p := q.Packet
	p.ID = id
	_, err := d.server.Write(p.Append(nil))
	return err
}

func (d *device) pass(p wire.Packet) error {
	d.mu.Lock()
	known := p.Tx == 0 || p.Type == wire.TransactionStart || d.txs[p.Tx]
	d.mu.Unlock()
	if !known {
		p.Type, p.Body = wire.Error, wire.Join("ENOENT")
		d.enqueuePacket(p)
		return nil
	}
	return d.ask(question{Packet: p})
}

// wait sends a request of our own and blocks until its answer.
func (d *device) wait(p wire.Packet) error {
	answer := make(chan wire.Packet, 1)
	if err := d.ask(question{p, answer}); err != nil {
		return err
	}
	p, whole := <-answer
	if !whole {
		return syscall.EIO
	}
	if p.Type == wire.Error {
		return wire.Errno(wire.Text(p.Body))
	}
	return nil
}

func (d *device) watch(p wire.Packet) error {
	args := wire.Split(p.Body)
	if len(args) < 2 {
		return syscall.EILSEQ
	}
	d.mu.Lock()
	token := "k" + strconv.Itoa(len(d.watches)) + "-" + strconv.Itoa(int(d.last))
	d.watches[token] = p
	d.mu.Unlock()
	if err := d.wait(wire.Packet{Type: wire.Watch, Body: wire.Join(args[0], token)}); err != nil {
		d.mu.Lock()
		delete(d.watches, token)
		d.mu.Unlock()
		return err
	}
	d.synthesise(p)
	return nil
}

func (d *device) unwatch(p wire.Packet) error {
	d.mu.Lock()
	ours := ""
	for token, w := range d.watches {
		if string(w.Body) == string(p.Body) {
			ours = token
		}
	}
	delete(d.watches, ours)
	d.mu.Unlock()
	if ours != "" {
		if err := d.wait(wire.Packet{Type: wire.Unwatch, Body: wire.Join(wire.Split(p.Body)[0], ours)}); err != nil {
			return err
		}
	}
	d.synthesise(p)
	return nil
}

// synthesise answers a request without the server.
func (d *device) synthesise(p wire.Packet) {
	p.Body = wire.Join("OK")
	if d.old {
		p.ID = 0
	}
	d.enqueuePacket(p)
}

// enqueuePacket passes a packet to the reader.
func (d *device) enqueuePacket(p wire.Packet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out = p.Append(d.out)
	d.came.Broadcast()
}

// hear passes on the server's packets.
func (d *device) hear() {
	var parser wire.Parser
	b := make([]byte, 2*wire.BodyMax)
	for {
		n, err := d.server.Read(b)
		parser.Feed(b[:n])
		for p, whole, _ := parser.Next(); whole; p, whole, _ = parser.Next() {
			d.answered(p)
		}
		if err != nil {
			d.end()
			return
		}
	}
}

func (d *device) answered(p wire.Packet) {
	if p.Type == wire.WatchEvent {
		args := wire.Split(p.Body)
		d.mu.Lock()
		w, known := d.watches[args[1]]
		d.mu.Unlock()
		if known { // the header fields of an event are undefined
			d.enqueuePacket(wire.Packet{Type: wire.WatchEvent, ID: 0xdead, Tx: 0xbeef, Body: wire.Join(args[0], wire.Split(w.Body)[1])})
		}
		return
	}
	d.mu.Lock()
	q := d.asked[p.ID]
	delete(d.asked, p.ID)
	switch {
	case q.Type == wire.TransactionEnd:
		delete(d.txs, p.Tx)
	case q.Type == wire.TransactionStart && p.Type != wire.Error:
		id, _ := strconv.ParseUint(wire.Text(p.Body), 10, 32)
		d.txs[uint32(id)] = true
	}
	d.mu.Unlock()
	if q.answer != nil {
		q.answer <- p
		return
	}
	p.ID = q.ID
	d.enqueuePacket(p)
}

// end ends all waiting calls when the server is gone.
func (d *device) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for _, q := range d.asked {
		if q.answer != nil {
			close(q.answer)
		}
	}
	clear(d.asked)
	d.came.Broadcast()
}

// Close closes the connection to the server.
func (d *device) Close() error { return d.server.Close() }
