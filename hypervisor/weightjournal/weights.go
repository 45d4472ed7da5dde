package weightjournal

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Weight is a weight that other programs set, too, such as a cgroup's, or that of a Xen domain.
type Weight interface {
	Get() (int64, error) // ErrOff: the machine is off
	Put(weight int64) error
}

// ErrOff reports that a machine is off and has no weight.
var ErrOff = errors.New("the machine is off")

// Weights are the weights of machines that a daemon changes temporarily. A weight that another program sets becomes
// the configured one: Weights records its own writes to distinguish them.
//
// Before a weight is changed for the first time, the configured weight and the daemon's identity are recorded in a
// directory: if the daemon dies, the machine's hub or the next daemon restores the weight. Not safe for concurrent
// use.
type Weights struct {
	dir    string
	what   string // the kind of machine, for messages
	log    *slog.Logger
	known  map[string]*weight // by domain
	logged map[string]string  // by domain: the logged reason why it can't be changed
}

// weight is the state of one weight.
type weight struct {
	Weight
	set   int64 // the configured weight
	wrote int64 // our last write; 0: none since set was read
	stuck bool  // the last write failed
	note  Record
}

// NewWeights returns Weights that keep their records in dir. what names the kind of machine in messages, such as "a
// machine".
func NewWeights(dir, what string, log *slog.Logger) *Weights {
	return &Weights{dir: dir, what: what, log: log, known: make(map[string]*weight), logged: make(map[string]string)}
}

// See returns the configured and the current weight of a machine; where identifies the weight. A restore that failed
// before is retried first.
func (w *Weights) See(domain string, where Record, is Weight) (set, has int64, err error) {
	known := w.known[domain]
	if known == nil || !known.note.same(where) {
		if err := w.forget(domain); err != nil {
			return 0, 0, err
		}
		if err := w.inherit(domain, where, is); err != nil {
			return 0, 0, err
		}
		known = &weight{Weight: is, note: where}
		w.known[domain] = known
	}
	if err := w.read(domain, known); err != nil {
		return 0, 0, err
	}
	if known.stuck && known.wrote != 0 { // the caller assumes that its last change was written
		if err := known.put(0, known.set); err != nil {
			return 0, 0, err
		}
	}
	if known.wrote == 0 {
		return known.set, known.set, nil
	}
	return known.set, known.wrote, nil
}

// inherit restores a weight that an earlier daemon left changed, if Sweep couldn't: else it would be taken for the
// configured one.
func (w *Weights) inherit(domain string, where Record, is Weight) error {
	left, err := read(pathOf(w.dir, domain))
	if err != nil || !left.same(where) {
		return nil // there is no record, or it is of a machine that is off: this one has begun since
	}
	has, err := is.Get()
	if err == nil && slices.Contains(left.Ours, has) {
		err = is.Put(left.Set)
	}
	if err == nil {
		left.Erase(w.dir, domain)
	}
	return err
}

// same reports whether another record is of the same weight.
func (r *Record) same(o Record) bool { return r.File == o.File && r.Xen == o.Xen }

// Complain logs once why a machine's weight isn't changed.
func (w *Weights) Complain(domain string, err error) {
	if w.logged[domain] != err.Error() {
		w.logged[domain] = err.Error()
		w.log.Warn("the CPU weight of "+w.what+" can't follow the accelerator", "domain", domain, "err", err)
	}
}

// Keep removes all machines for which is reports false. A machine that has a weight of ours stays until Raise
// restores it; where Raise failed, Keep retries.
func (w *Weights) Keep(is func(domain string) bool) {
	for domain, known := range w.known {
		if is(domain) || known.wrote != 0 && !known.stuck {
			continue
		}
		if err := w.forget(domain); err != nil {
			w.Complain(domain, err)
		}
	}
}

// read updates the configured weight: the current one, unless we wrote that. A record of another configured weight is
// erased.
func (w *Weights) read(domain string, known *weight) error {
	has, err := known.Get()
	if err == nil && has != known.wrote {
		known.set, known.wrote = has, 0
	}
	if known.note.Set != known.set {
		known.note.Erase(w.dir, domain)
	}
	return err
}

// Raise sets another weight for a machine that See has seen; changed reports that the machine had a weight that we
// didn't write, which stays.
func (w *Weights) Raise(domain string, to int64) (changed bool, err error) {
	if changed, err = w.raise(domain, to); err != nil {
		w.Complain(domain, err)
	} else {
		delete(w.logged, domain)
	}
	return changed, err
}

func (w *Weights) raise(domain string, to int64) (changed bool, err error) {
	known := w.known[domain]
	if known == nil {
		return false, fmt.Errorf("domain %q: not %s with a known CPU weight", domain, w.what)
	}
	had := known.set
	if known.wrote != 0 {
		had = known.wrote
	}
	if err := w.read(domain, known); err != nil {
		return false, err
	}
	if known.wrote == 0 && known.set != had {
		return true, nil
	}
	if to == known.set {
		return false, known.put(0, to)
	}
	if err := known.note.Note(w.dir, domain, known.set, to); err != nil {
		return false, err
	}
	return false, known.put(to, to)
}

// put writes a weight, which is ours unless wrote is 0. If the write fails, the previous weight and its origin stay.
func (k *weight) put(wrote, to int64) error {
	err := k.Put(to)
	if k.stuck = err != nil; !k.stuck {
		k.wrote = wrote
	}
	return err
}

// Restore restores the configured weights of all machines. A failed restore leaves its record to the hub, or the next
// daemon.
func (w *Weights) Restore() {
	for domain := range w.known {
		if err := w.forget(domain); err != nil {
			w.log.Warn("give "+w.what+" back its CPU weight", "domain", domain, "err", err)
		}
	}
}

// forget restores a machine's configured weight and removes the machine. If the restore fails, the machine and its
// record stay.
func (w *Weights) forget(domain string) error {
	known := w.known[domain]
	if known == nil {
		return nil
	}
	if known.wrote != 0 {
		err := w.read(domain, known)
		if err == nil && known.wrote != 0 {
			err = known.put(0, known.set)
		}
		if err != nil && !errors.Is(err, ErrOff) {
			return err
		}
	}
	delete(w.known, domain)
	known.note.Erase(w.dir, domain)
	return nil
}

// Plain returns the configured weight where the current one is has, which we may have written.
func (w *Weights) Plain(where Record, has int64) int64 {
	if w == nil {
		return has
	}
	for _, known := range w.known {
		if known.note.same(where) && slices.Contains(known.note.Ours, has) {
			return known.set
		}
	}
	return has
}

// Yield makes a weight that is given the configured one, even if it equals one of ours.
func (w *Weights) Yield(where Record, set int64) {
	if w == nil {
		return
	}
	for domain, known := range w.known {
		if known.note.same(where) {
			known.set, known.wrote = set, 0
			known.note.Erase(w.dir, domain)
		}
	}
}

// Use distinguishes busy from idle consumers of CPU time, by their CPU time at the previous and the current sample.
type Use[K comparable] struct{ now, before map[K]used }

type used struct {
	time time.Duration
	at   time.Time
}

// Next begins the next sample of all consumers.
func (u *Use[K]) Next() { u.before, u.now = u.now, make(map[K]used) }

// Busy adds a consumer's CPU time, and reports whether it used at least 1 % of the time since the previous sample.
func (u *Use[K]) Busy(who K, time time.Duration, at time.Time) bool {
	const some = 100
	u.now[who] = used{time, at}
	was, seen := u.before[who]
	return seen && (time-was.time)*some > at.Sub(was.at)
}
