package policies

// heap keeps entries with the least in front, and knows where each one is, so
// that any can be taken out. slot says which of an entry's positions is this
// heap's: an entry may be in several heaps at once.
type heap struct {
	items []*entry
	slot  int
	less  func(a, b *entry) bool
}

func (h *heap) len() int { return len(h.items) }

// top returns the least entry, or nil.
func (h *heap) top() *entry {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap) has(e *entry) bool { return e.at[h.slot] > 0 }

func (h *heap) push(e *entry) {
	h.items = append(h.items, e)
	e.at[h.slot] = len(h.items)
	h.up(len(h.items) - 1)
}

func (h *heap) remove(e *entry) {
	i := e.at[h.slot] - 1
	last := len(h.items) - 1
	h.swap(i, last)
	h.items[last] = nil
	h.items = h.items[:last]
	e.at[h.slot] = 0
	if i < last {
		h.fix(h.items[i])
	}
}

// fix puts e, whose order changed, in its place.
func (h *heap) fix(e *entry) {
	i := e.at[h.slot] - 1
	h.down(i)
	h.up(i)
}

func (h *heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap) down(i int) {
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

func (h *heap) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].at[h.slot] = i + 1
	h.items[j].at[h.slot] = j + 1
}
