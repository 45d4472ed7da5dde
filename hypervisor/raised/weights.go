package raised

import (
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Weight is one that others set, too, such as a cgroup's, or that of a domain of Xen's.
type Weight interface {
	Get() (int64, error)
	Put(weight int64) error
}

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
	note  Record
}

// NewWeights writes down what it changes in a directory. What says what a machine is called, such
// as "a machine".
func NewWeights(dir, what string, log *slog.Logger) *Weights {
	return &Weights{dir: dir, what: what, log: log, known: make(map[string]*weight), told: make(map[string]string)}
}

// See sees what is set for a machine, and what it has for the moment; its weight is where a
// record says.
func (w *Weights) See(domain string, where Record, is Weight) (set, has int64, err error) {
	known := w.known[domain]
	if known == nil || !known.note.same(where) {
		w.forget(domain)
		known = &weight{Weight: is, note: where}
		w.known[domain] = known
	}
	if err := w.read(domain, known); err != nil {
		return 0, 0, err
	}
	if known.wrote == 0 {
		return known.set, known.set, nil
	}
	return known.set, known.wrote, nil
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

// Keep forgets machines but those, unless they have what we gave them.
func (w *Weights) Keep(is func(domain string) bool) {
	for domain, known := range w.known {
		if !is(domain) && known.wrote == 0 {
			w.forget(domain)
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

func (k *weight) put(wrote, to int64) error {
	k.wrote = wrote
	return k.Put(to)
}

// Restore gives all machines what is set for them.
func (w *Weights) Restore() {
	for domain := range w.known {
		w.forget(domain)
	}
}

// forget gives a machine back what is set for it.
func (w *Weights) forget(domain string) {
	known := w.known[domain]
	if known == nil {
		return
	}
	if known.wrote != 0 && w.read(domain, known) == nil && known.wrote != 0 {
		if err := known.put(0, known.set); err != nil {
			w.log.Warn("give "+w.what+" back its CPU weight", "domain", domain, "err", err)
		}
	}
	delete(w.known, domain)
	known.note.Erase(w.dir, domain)
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
