package raised

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Weight is one that others set, too, such as a cgroup's, or that of a domain of Xen's.
type Weight interface {
	Get() (int64, error) // ErrOff: there is none any more
	Put(weight int64) error
}

// ErrOff is what is wrong with the weight of a machine that is off.
var ErrOff = errors.New("the machine is off")

// Weights are those of machines that a daemon changes for moments. What of them others set stays
// what is set: it is known what we wrote.
//
// Before a weight is changed for the first time it is written down in a directory what is set, and
// which daemon changes it: if that dies, the machine's hub or the next daemon puts it back.
type Weights struct {
	dir   string
	what  string // a machine is called
	log   *slog.Logger
	known map[string]*weight // by domain
	told  map[string]string  // by domain: why it can't be changed, as was logged
}

// weight is one that we may change.
type weight struct {
	Weight
	set   int64 // by others
	wrote int64 // by us, last; 0: nothing since set was read
	stuck bool  // it couldn't be changed when it was to be
	note  Record
}

// NewWeights writes down what it changes in a directory. What says what a machine is called, such
// as "a machine".
func NewWeights(dir, what string, log *slog.Logger) *Weights {
	return &Weights{dir: dir, what: what, log: log, known: make(map[string]*weight), told: make(map[string]string)}
}

// See sees what is set for a machine, and what it has for the moment; its weight is where a
// record says. What couldn't be put back before is put back first.
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
	if known.stuck && known.wrote != 0 { // whoever wants it changed believes that it was
		if err := known.put(0, known.set); err != nil {
			return 0, 0, err
		}
	}
	if known.wrote == 0 {
		return known.set, known.set, nil
	}
	return known.set, known.wrote, nil
}

// inherit puts back what a daemon before has left, if Sweep couldn't: else it would be taken for what is set.
func (w *Weights) inherit(domain string, where Record, is Weight) error {
	left, err := read(pathOf(w.dir, domain))
	if err != nil || !left.same(where) {
		return nil // there is nothing, or it is of a machine that is off: this one has begun since
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

// same says whether another record is of the same weight.
func (r *Record) same(o Record) bool { return r.File == o.File && r.Xen == o.Xen }

// Complain says once why a machine's weight isn't changed.
func (w *Weights) Complain(domain string, err error) {
	if w.told[domain] != err.Error() {
		w.told[domain] = err.Error()
		w.log.Warn("the CPU weight of "+w.what+" can't follow the accelerator", "domain", domain, "err", err)
	}
}

// Keep forgets machines but those. One that has what we gave it is known until Raise puts that back;
// where Raise couldn't, it is tried again here.
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

// read sees what is set: what there is, unless we wrote that. What we wrote down before, if that was
// something else, doesn't hold any more.
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

// Raise gives a machine that was seen another weight; changed says that it had another than we gave
// it, which stays.
func (w *Weights) Raise(domain string, to int64) (changed bool, err error) {
	if changed, err = w.raise(domain, to); err != nil {
		w.Complain(domain, err)
	} else {
		delete(w.told, domain)
	}
	return changed, err
}

func (w *Weights) raise(domain string, to int64) (changed bool, err error) {
	known := w.known[domain]
	if known == nil {
		return false, fmt.Errorf("domain %q: it is not %s whose CPU weight is known", domain, w.what)
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

// put writes a weight, which is ours unless wrote is 0. While that fails it has what it had, and that
// is as much ours as it was.
func (k *weight) put(wrote, to int64) error {
	err := k.Put(to)
	if k.stuck = err != nil; !k.stuck {
		k.wrote = wrote
	}
	return err
}

// Restore gives all machines what is set for them. Of those for which that fails there is a record
// for the hub, or the next daemon.
func (w *Weights) Restore() {
	for domain := range w.known {
		if err := w.forget(domain); err != nil {
			w.log.Warn("give "+w.what+" back its CPU weight", "domain", domain, "err", err)
		}
	}
}

// forget gives a machine back what is set for it. While that fails, the machine is known and what is
// set written down.
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

// Plain is what is set where there is a weight. We may have written something else since.
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

// Yield takes a weight that is given for one that is set, even if it is one of ours.
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

// Use tells those that want CPUs from those that rest, by the CPU time that they had used when they
// were looked at.
type Use[K comparable] struct{ now, before map[K]used }

type used struct {
	time time.Duration
	at   time.Time
}

// Next begins another look at all.
func (u *Use[K]) Next() { u.before, u.now = u.now, make(map[K]used) }

// Busy looks at one of them, which has used so much: it does if that is at least 1 % of what passed.
func (u *Use[K]) Busy(who K, time time.Duration, at time.Time) bool {
	const some = 100
	u.now[who] = used{time, at}
	was, seen := u.before[who]
	return seen && (time-was.time)*some > at.Sub(was.at)
}
