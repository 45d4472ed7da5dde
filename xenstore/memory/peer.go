package memory

import (
	"bytes"
	"io"
	"sync"

	"pegasus/xenstore/wire"
)

// peer is a connection: of a domain, or of a tool of domain 0. The server's lock guards all of it.
type peer struct {
	server *Server
	dom    wire.DomID
	link   io.ReadWriteCloser

	watches []*watch
	txs     map[uint32]*tx
	nextTx  uint32

	out  []wire.Packet // unsent packets
	room *sync.Cond    // signals a change of out or gone
	gone bool
}

// outMax bounds the packets queued for a peer that doesn't read; at the bound its requests wait.
const outMax = 256

// serve starts to serve a peer over a link, until that ends.
func (s *Server) serve(link io.ReadWriteCloser, dom wire.DomID) {
	p := s.join(dom)
	p.link = link
	s.serving.Go(p.read)
	s.serving.Go(p.write)
}

func (p *peer) read() {
	var parser wire.Parser
	b := make([]byte, 2*wire.BodyMax)
	for {
		n, err := p.link.Read(b)
		parser.Feed(b[:n])
		if bad := p.hear(&parser); err != nil || bad != nil {
			break
		}
	}
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.server.drop(p)
}

// hear carries out requests, while the peer reads the answers.
func (p *peer) hear(parser *wire.Parser) error {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	for {
		for len(p.out) >= outMax && !p.gone {
			p.room.Wait()
		}
		packet, ok, err := parser.Next()
		if !ok || p.gone {
			return err
		}
		p.handle(packet)
	}
}

func (p *peer) write() {
	for {
		p.server.mu.Lock()
		for len(p.out) == 0 && !p.gone {
			p.room.Wait()
		}
		out := p.out
		p.out = nil
		gone := p.gone
		p.room.Broadcast()
		p.server.mu.Unlock()
		if gone {
			return
		}
		var b []byte
		for _, packet := range out {
			b = packet.Append(b)
		}
		if _, err := p.link.Write(b); err != nil {
			return // the reader gets the error, too
		}
	}
}

// send enqueues a packet.
func (p *peer) send(packet wire.Packet) {
	p.out = append(p.out, packet)
	p.room.Broadcast()
}

// enqueueEvent enqueues an event, unless the same one is queued.
func (p *peer) enqueueEvent(path, token string) {
	event := wire.Packet{Type: wire.WatchEvent, Body: wire.Join(path, token)}
	if len(event.Body) > wire.BodyMax {
		return
	}
	if path[0] != '@' {
		for _, waiting := range p.out {
			if waiting.Type == wire.WatchEvent && bytes.Equal(waiting.Body, event.Body) {
				return
			}
		}
	}
	p.send(event)
}

// reset removes all watches and transactions.
func (p *peer) reset() {
	p.watches = nil
	clear(p.txs)
}

// privileged reports whether the peer has all permissions.
func (p *peer) privileged() bool { return p.dom == 0 }

// path returns the absolute path.
func (p *peer) path(path string) string {
	if path != "" && (path[0] == '/' || path[0] == '@') {
		return path
	}
	return p.home() + "/" + path
}

// home returns the directory of relative paths.
func (p *peer) home() string { return "/local/domain/" + p.dom.String() }
