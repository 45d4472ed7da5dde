package policies

// heap keeps items with the least in front, and knows where each one is, so that
// any can be taken out. at says where an item keeps its position, counted from 1;
// 0: it is not in this heap.
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
	*h.at(e) = len(h.items)
	h.up(len(h.items) - 1)
}

func (h *heap[T]) remove(e *T) {
	i := *h.at(e) - 1
	last := len(h.items) - 1
	h.swap(i, last)
	h.items[last] = nil
	h.items = h.items[:last]
	*h.at(e) = 0
	if i < last {
		h.fix(h.items[i])
	}
}

// fix puts e, whose order changed, in its place.
func (h *heap[T]) fix(e *T) {
	i := *h.at(e) - 1
	h.down(i)
	h.up(i)
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], h.items[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *heap[T]) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.at(h.items[i]) = i + 1
	*h.at(h.items[j]) = j + 1
}
