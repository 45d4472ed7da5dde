package worker

import "pegasus/cuda"

// table maps the ids that a guest chose for one kind of object. An id whose creation failed returns that error until it
// is destroyed.
type table[T any] struct {
	m map[uint64]entry[T]

	lastID uint64 // id of the latest lookup: most calls are for one stream and one module; 0: none
	last   T
}

// entry is an object, or the error of its creation.
type entry[T any] struct {
	object T
	bad    cuda.Result
}

func newTable[T any]() table[T] { return table[T]{m: make(map[uint64]entry[T])} }

// free reports whether an object may be made under id.
func (t *table[T]) free(id uint64) cuda.Result {
	if id == 0 {
		return cuda.ErrorInvalidHandle
	}
	if e, live := t.m[id]; live && e.bad == cuda.Success {
		return cuda.ErrorInvalidHandle
	}
	if len(t.m) >= maxObjects {
		return cuda.ErrorOutOfMemory
	}
	return cuda.Success
}

func (t *table[T]) put(id uint64, o T) {
	t.forget()
	t.m[id] = entry[T]{object: o}
}

// forget clears the cached lookup.
func (t *table[T]) forget() {
	var none T
	t.lastID, t.last = 0, none
}

// poison records and returns the error of the creation of the object with this id. It does not change a live object.
func (t *table[T]) poison(id uint64, r cuda.Result) cuda.Result {
	if _, known := t.m[id]; !known && id != 0 && len(t.m) < maxObjects {
		t.m[id] = entry[T]{bad: r}
	}
	return r
}

func (t *table[T]) get(id uint64) (T, cuda.Result) {
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

// take removes id and returns its object.
func (t *table[T]) take(id uint64) (T, cuda.Result) {
	o, r := t.get(id)
	delete(t.m, id)
	t.forget()
	return o, r
}

// drop removes all objects that which chooses.
func (t *table[T]) drop(which func(T) bool) {
	t.forget()
	for id, e := range t.m {
		if e.bad == cuda.Success && which(e.object) {
			delete(t.m, id)
		}
	}
}
