package policies

// heap is a binary heap that keeps the least item in front and the position of each item, so that any can be
// removed. at returns the address of an item's position, counted from 1; 0: it is not in this heap.
type heap[T any] struct {
	items []*T
	at    func(*T) *int
	less  func(a, b *T) bool
}

func (h *heap[T]) len() int { return len(h.items) }

// top returns the least entry, or nil.
func (h *heap[T]) top() *T {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap[T]) has(e *T) bool { return *h.at(e) > 0 }

func (h *heap[T]) push(e *T) {
	h.items = append(h.items, e)
	h.up(len(h.items)-1, e)
}

func (h *heap[T]) remove(e *T) {
	i := *h.at(e) - 1
	last := len(h.items) - 1
	moved := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	*h.at(e) = 0
	if i < last {
		h.up(h.down(i, moved), moved)
	}
}

// fix moves e to its place after its order changed.
func (h *heap[T]) fix(e *T) { h.up(h.down(*h.at(e)-1, e), e) }

// up places e at i, or nearer to the front.
func (h *heap[T]) up(i int, e *T) {
	for i > 0 {
		parent := (i - 1) / 2
		p := h.items[parent]
		if !h.less(e, p) {
			break
		}
		h.put(i, p)
		i = parent
	}
	h.put(i, e)
}

// down returns the place for e, which may not stay at i, and makes room there.
func (h *heap[T]) down(i int, e *T) int {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return i
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], e) {
			return i
		}
		h.put(i, h.items[child])
		i = child
	}
}

func (h *heap[T]) put(i int, e *T) {
	h.items[i] = e
	*h.at(e) = i + 1
}
