// Package handles maps the ids that a guest process chooses for its objects to the worker's objects. A table has no
// lock: it belongs to the poller.
//
// Callers: backend/worker/session, with one table for each kind of object.
//
// Trust boundary: ids come from the guest. A table rejects an id that is in use, and bounds the number of objects.
package handles

import "pegasus/cuda"

// Max bounds the live objects in a table.
const Max = 65536

// Table maps the ids of one kind of object. An id returns the error of its creation, if that failed, until it is
// destroyed.
type Table[T any] struct {
	m map[uint64]entry[T]

	lastID uint64 // id of the latest lookup: most calls are for one stream and one module; 0: none
	last   T
}

// entry is an object, or the error of its creation.
type entry[T any] struct {
	object T
	bad    cuda.Result
}

// New returns an empty table.
func New[T any]() Table[T] { return Table[T]{m: make(map[uint64]entry[T])} }

// Available reports whether an object may be made under id: it returns the error of a call that makes one, or Success.
func (t *Table[T]) Available(id uint64) cuda.Result {
	if id == 0 {
		return cuda.ErrorInvalidHandle
	}
	if e, live := t.m[id]; live && e.bad == cuda.Success {
		return cuda.ErrorInvalidHandle
	}
	if len(t.m) >= Max {
		return cuda.ErrorOutOfMemory
	}
	return cuda.Success
}

// Put adds an object under an id that is available.
func (t *Table[T]) Put(id uint64, o T) {
	t.forget()
	t.m[id] = entry[T]{object: o}
}

// forget clears the cached lookup.
func (t *Table[T]) forget() {
	var none T
	t.lastID, t.last = 0, none
}

// Fail records and returns the error of the creation of the object with this id. It does not change a live object.
func (t *Table[T]) Fail(id uint64, r cuda.Result) cuda.Result {
	if _, known := t.m[id]; !known && id != 0 && len(t.m) < Max {
		t.m[id] = entry[T]{bad: r}
	}
	return r
}

// Get returns the object with this id, or an error.
func (t *Table[T]) Get(id uint64) (T, cuda.Result) {
	if id == t.lastID && id != 0 {
		return t.last, cuda.Success
	}
	e, ok := t.m[id]
	if !ok {
		return e.object, cuda.ErrorInvalidHandle
	}
	if e.bad == cuda.Success {
		t.lastID, t.last = id, e.object
	}
	return e.object, e.bad
}

// Take removes id and returns its object.
func (t *Table[T]) Take(id uint64) (T, cuda.Result) {
	o, r := t.Get(id)
	delete(t.m, id)
	t.forget()
	return o, r
}

// DeleteFunc removes all objects for which which returns true.
func (t *Table[T]) DeleteFunc(which func(T) bool) {
	t.forget()
	for id, e := range t.m {
		if e.bad == cuda.Success && which(e.object) {
			delete(t.m, id)
		}
	}
}
