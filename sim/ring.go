package sim

// ring is a growing FIFO queue.
type ring[T any] struct {
	items []T // length is a power of two, or 0
	first int
	count int
}

func (r *ring[T]) len() int { return r.count }

func (r *ring[T]) at(i int) T { return r.items[(r.first+i)&(len(r.items)-1)] }

func (r *ring[T]) push(v T) {
	if r.count == len(r.items) {
		r.grow()
	}
	r.items[(r.first+r.count)&(len(r.items)-1)] = v
	r.count++
}

func (r *ring[T]) grow() {
	bigger := make([]T, max(2*len(r.items), 4))
	for i := range r.count {
		bigger[i] = r.at(i)
	}
	r.items, r.first = bigger, 0
}

func (r *ring[T]) pop() T {
	var none T
	v := r.items[r.first]
	r.items[r.first] = none
	r.first = (r.first + 1) & (len(r.items) - 1)
	r.count--
	return v
}

// remove removes and returns the i-th item.
func (r *ring[T]) remove(i int) T {
	v := r.at(i)
	for ; i > 0; i-- {
		r.items[(r.first+i)&(len(r.items)-1)] = r.at(i - 1)
	}
	r.pop()
	return v
}
