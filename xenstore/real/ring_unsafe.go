package real

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"pegasus/xenstore"
)

// Offsets in a domain's page (struct xenstore_domain_interface).
const (
	pageBytes   = 4096
	ringBytes   = 1024
	requests    = 0
	answers     = ringBytes
	reqConsumer = 2 * ringBytes
	reqProducer = reqConsumer + 4
	ansConsumer = reqConsumer + 8
	ansProducer = reqConsumer + 12
)

// ring is a domain's end of its page: two rings of bytes.
type ring struct {
	server *Server
	port   uint32
	bell   *os.File

	mu     sync.Mutex
	rung   *sync.Cond
	page   []byte // nil when closed
	listen sync.WaitGroup
}

func (s *Server) openRing(dom xenstore.DomID) (*ring, error) {
	f, err := os.OpenFile(s.path("page-"+dom.String()), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(pageBytes); err != nil {
		return nil, err
	}
	bell, err := s.bellOf(dom)
	if err != nil {
		return nil, err
	}
	page, err := unix.Mmap(int(f.Fd()), 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		bell.Close()
		return nil, err
	}
	r := &ring{server: s, port: uint32(dom) + 1, bell: bell, page: page}
	r.rung = sync.NewCond(&r.mu)
	r.listen.Go(r.hear)
	return r, nil
}

// word returns an index in the page, which the server may change at any time. The offset is one of ours: aligned, and
// within the page, which is mapped while mu is held and page isn't nil.
func (r *ring) word(offset int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.page[offset]))
}

// hear forwards the server's notifications to the waiting calls.
func (r *ring) hear() {
	b := make([]byte, 64)
	for {
		_, err := r.bell.Read(b)
		r.rung.L.Lock()
		r.rung.Broadcast()
		r.rung.L.Unlock()
		if err != nil {
			return
		}
	}
}

// Read blocks until there are bytes.
func (r *ring) Read(b []byte) (int, error) { return r.wait(b, r.take) }

// Write blocks until all of b is in the ring.
func (r *ring) Write(b []byte) (done int, err error) {
	for done < len(b) && err == nil {
		var n int
		n, err = r.wait(b[done:], r.put)
		done += n
	}
	return done, err
}

// wait blocks until move moves some bytes, and notifies the server.
func (r *ring) wait(b []byte, move func([]byte) int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.page != nil {
		if n := move(b); n > 0 {
			return n, r.server.ring(r.port)
		}
		r.rung.Wait()
	}
	return 0, os.ErrClosed
}

func (r *ring) take(b []byte) int {
	from, to := r.word(ansConsumer).Load(), r.word(ansProducer).Load()
	n := min(len(b), int(to-from), ringBytes-int(from%ringBytes))
	copy(b[:n], r.page[answers+int(from%ringBytes):])
	r.word(ansConsumer).Store(from + uint32(n))
	return n
}

func (r *ring) put(b []byte) int {
	from, to := r.word(reqConsumer).Load(), r.word(reqProducer).Load()
	n := min(len(b), ringBytes-int(to-from), ringBytes-int(to%ringBytes))
	copy(r.page[requests+int(to%ringBytes):], b[:n])
	r.word(reqProducer).Store(to + uint32(n))
	return n
}

// Close ends waiting Reads and Writes. The server isn't notified.
func (r *ring) Close() error {
	r.mu.Lock()
	if r.page == nil {
		r.mu.Unlock()
		return os.ErrClosed
	}
	err := unix.Munmap(r.page)
	r.page = nil
	r.rung.Broadcast()
	r.mu.Unlock()
	r.bell.Close()
	r.listen.Wait()
	return err
}
