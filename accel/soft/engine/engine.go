// Package engine grants each engine of a software accelerator to one process at a time, and its memory to the workers
// that reserved it.
//
// The workers of a domain map a page of the domain, Engines: it contains a queue for each engine, and the time for
// which the workers held each. The daemon maps it, too, and grants each engine to one domain after another (Arbiter).
// All workers of an accelerator map a further page, Memory: it contains the bytes that each worker has reserved, and
// the seats of the threads that may spin. The daemon creates both.
//
// Callers: accel/soft in the workers, and cmd/pegasusd and cmd/pegasus-nvidia for the daemon's part.
//
// Trust boundary: no guest maps the pages. A compromised worker may write anything into its domain's Engines, which
// harms that domain only, and into Memory, which can make other domains' allocations fail.
//
// A token is a first-in-first-out lock across processes. A worker claims a ticket together with its own identity in one
// atomic step, so that a process may die between any two instructions and the others can determine which process held
// the ticket. Waiters check every 50 ms whether the holder lives; the daemon calls Reap as soon as it detects that a
// worker died, which ends the wait at once.
package engine

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Token names one engine.
type Token uint8

const (
	Compute Token = iota // kernels, fills and copies inside the device
	CopyIn               // host to device
	CopyOut              // device to host
	NumTokens
)

// MaxUsers bounds the places in a domain's page; a worker has up to two.
const MaxUsers = 512

const (
	enginesMagic   = 0x53454e49474e45 // "ENGINES"
	enginesVersion = 1
)

// kind is the type and version of a page.
type kind struct {
	magic   uint64
	version uint32
	_       [4]byte
}

// enginesLayout is a domain's page. Words that different processes write are in separate cache lines.
type enginesLayout struct {
	kind
	_        [48]byte
	high     atomic.Uint32
	_        [60]byte
	users    [MaxUsers]user
	tokens   [NumTokens]tokenWords
	grants   [NumTokens]grant
	added    [NumTokens]atomic.Int64 // of engines that are held without a token; see Worker.Charge
	granting atomic.Int64            // time until which the daemon's last renewal grants engines; 0: no daemon ever did

	// Written by the daemon for the next daemon.
	charged [NumTokens]atomic.Int64 // the part of the time held that Charge has returned
	opened  int64                   // when the page was made
}

// user is a place in the page.
type user struct {
	owner    atomic.Uint64
	wants    [NumTokens]atomic.Int64 // when it last requested each token
	executes [NumTokens]atomic.Int64 // see Worker.Executes
	polls    atomic.Int64            // words in memory; see Worker.Polls
}

// Engines is the mapped page of a domain on an accelerator.
type Engines struct {
	registry
	mem    []byte
	l      *enginesLayout
	damage [NumTokens]damage       // as observed by Mend, in the daemon
	extra  [NumTokens]atomic.Int64 // observed holds that the page leaves out, in ns, to be charged
	account
}

// CreateEngines creates the page of a domain, which has the engines alone unless it is added to an Arbiter.
func CreateEngines() (*Engines, error) { return newEngines(newMemfd("pegasus-engines", enginesSize)) }

// CreateEnginesAt creates the page of a domain in a new file, so that it outlives all processes that map it. The file
// must be one that none of them can shorten.
func CreateEnginesAt(path string) (*Engines, error) { return newEngines(newFile(path, enginesSize)) }

func newEngines(fd int, err error) (*Engines, error) {
	if err != nil {
		return nil, fmt.Errorf("create a domain's engine page: %w", err)
	}
	e, err := mapEngines(fd)
	if err != nil {
		return nil, err
	}
	for k := range e.l.tokens {
		e.l.tokens[k].init()
		e.l.grants[k].word.Store(uint64(granted(nobody)))
	}
	e.l.opened = Now()
	e.l.version = enginesVersion
	e.l.magic = enginesMagic
	e.account.open(e.l)
	return e, nil
}

// OpenEngines maps the page that fd refers to and takes ownership of the descriptor.
func OpenEngines(fd int) (*Engines, error) {
	if err := checkFile(fd, enginesSize); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("a domain's engine page: %w", err)
	}
	e, err := mapEngines(fd)
	if err != nil {
		return nil, err
	}
	if e.l.magic != enginesMagic || e.l.version != enginesVersion {
		err := fmt.Errorf("a domain's engine page: magic %#x, version %d", e.l.magic, e.l.version)
		e.Close()
		return nil, err
	}
	e.account.open(e.l)
	return e, nil
}

func (e *Engines) init(fd int) {
	e.registry = registry{fd: fd, locks: fd, places: MaxUsers, owner: func(i int) *atomic.Uint64 { return &e.l.users[i].owner }, release: e.release, high: &e.l.high}
}

// LockIn puts the locks of the places into the file of the accelerator's page: a worker that could lock in a page that
// lies in a file system could also make that larger, and fill the file system. It comes before any place is taken.
func (e *Engines) LockIn(m *Memory) error {
	var st unix.Stat_t
	if err := unix.Fstat(e.fd, &st); err != nil {
		return fmt.Errorf("a domain's engine page: %w", err)
	}
	e.locks = m.fd
	e.lockAt = 1<<20 + int64(st.Ino&(1<<40-1))*MaxUsers
	return nil
}

// FD returns the page's descriptor, to be passed to workers. The page keeps ownership.
func (e *Engines) FD() int { return e.fd }

// File transfers the page's descriptor to a file, which the caller owns.
func (e *Engines) File() *os.File {
	f := os.NewFile(uintptr(e.fd), "engines")
	e.fd = -1
	return f
}

// Holder returns the process that holds a token now, 0 if none.
func (e *Engines) Holder(k Token) int {
	t := &e.l.tokens[k]
	s := t.serving.Load()
	w := t.slot(s).word.Load()
	if !w.claims(s) {
		return 0
	}
	i, epoch := w.worker()
	return e.pid(i, epoch)
}

// release frees place i if it still belongs to owner. The time for which a dead owner held engines is charged up to now.
func (e *Engines) release(i int, owner uint64) {
	for k := range NumTokens {
		e.dropAll(k, i, ownerEpoch(owner))
	}
	u := &e.l.users[i]
	for k := range u.executes {
		if since := u.executes[k].Load(); since != 0 && u.owner.Load() == owner && u.executes[k].CompareAndSwap(since, 0) {
			e.l.added[k].Add(max(Now()-since, 0))
		}
	}
	u.owner.CompareAndSwap(owner, ownerWord(ownerEpoch(owner)+1, 0))
}

// dropAll abandons every ticket of a worker, and ends the one that is being served.
func (e *Engines) dropAll(k Token, worker int, epoch uint16) {
	t := &e.l.tokens[k]
	n, tail := t.serving.Load(), t.tail.Load()
	if !t.sane() || tail-n > slotsPerToken {
		return
	}
	for tail++; n != tail; n++ { // one further: claimed, but the tail was not moved yet
		s := t.slot(n)
		w := claimWord(n, worker, epoch)
		if s.word.Load()&^abandoned != w {
			continue
		}
		s.word.CompareAndSwap(w, w|abandoned)
		t.tail.CompareAndSwap(n, n+1)
		if t.serving.Load() == n {
			e.end(k, n, Now())
		}
	}
}

// recover passes a token on if its holder died, gave up its ticket, or died while passing it on.
func (e *Engines) recover(k Token, now int64) {
	t := &e.l.tokens[k]
	for range slotsPerToken {
		n := t.serving.Load()
		if n == t.tail.Load() {
			return
		}
		w := t.slot(n).word.Load()
		switch {
		case t.serving.Load() != n:
		case w == freeWord(n+slotsPerToken):
			if ended, skip := e.advance(k, n); skip { // ended, but not passed on
				e.end(k, n+1, ended)
			}
		case w.claims(n) && !w.abandoned() && e.holderLives(w):
			return
		default:
			e.end(k, n, now)
		}
	}
}

// holderLives reports whether the process that claimed a ticket is alive.
func (e *Engines) holderLives(w ticketWord) bool {
	i, epoch := w.worker()
	return e.pid(i, epoch) != 0 && e.alive(i)
}
