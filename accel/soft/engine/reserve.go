package engine

// reserver returns the worker's place in the accelerator's page.
func (w *Worker) reserver() *reserver { return &w.memory.l.workers[w.at.index] }

// Reserve adds n bytes to this process's part of the accelerator's memory, unless fewer are available to it.
func (w *Worker) Reserve(n uint64) bool {
	if n > memoryMask/2 || n > w.memory.Capacity() {
		return false
	}
	s := w.reserver()
	for range 2 {
		s.memory.Add(n) // first counted, then checked: a process that dies in between loses nothing
		if w.Room() >= 0 {
			return true
		}
		s.memory.Add(-n)
		w.memory.Sweep()
	}
	return false
}

// ReserveCommons sets the bytes that this process's domain has of its own. An increase succeeds only if there is room,
// and if all processes still fit beside it.
func (w *Worker) ReserveCommons(bytes uint64) bool {
	m := w.memory
	domain := w.reserver().domain.Load()
	c := m.commonOf(domain)
	if c == nil {
		return bytes == 0
	}
	before := c.bytes.Load()
	m.SetCommons(domain, bytes) // first counted, then checked
	if bytes <= before || w.Room() >= 0 && m.largest()+m.stays() <= m.Capacity() {
		return true
	}
	m.SetCommons(domain, before)
	return false
}

// largest returns the most bytes that one worker has reserved, memory that never leaves the device excluded.
func (m *Memory) largest() (most uint64) {
	for i := range m.used() {
		s := &m.l.workers[i]
		owner := s.owner.Load()
		has := s.memory.of(owner)
		most = max(most, has-min(has, s.pinned.of(owner)))
	}
	return most
}

// Pin marks n bytes that this process has reserved as never leaving the device, if all processes still fit beside the
// memory that stays there: a kernel needs all memory of its process.
func (w *Worker) Pin(n uint64) bool {
	m, s := w.memory, w.reserver()
	if m.fixed.swap == 0 {
		return true
	}
	s.pinned.Add(n) // first counted, then checked
	if m.largest()+m.stays() <= m.Capacity() {
		return true
	}
	s.pinned.Add(-n)
	return false
}

// Unpin reverts Pin.
func (w *Worker) Unpin(n uint64) {
	if w.memory.fixed.swap != 0 {
		w.reserver().pinned.Add(-n)
	}
}

// Room returns the bytes that this process may still reserve; less than 0: it has too many.
func (w *Worker) Room() int64 {
	m, s := w.memory, w.reserver()
	me := s.domain.Load()
	all := m.Commons()
	var unused, promised uint64
	for i := range m.used() {
		all += m.l.workers[i].memory.of(m.l.workers[i].owner.Load())
		if d, guarantee, has := m.domainAt(i); d != me && guarantee > 0 {
			unused += guarantee - min(has, guarantee)
			promised += guarantee
		}
	}
	left := int64(m.fixed.memory+m.fixed.swap) - int64(all) - int64(unused)
	if m.fixed.swap == 0 {
		return left
	}
	// One process's memory must fit the device, beside the guarantees of other domains.
	owner := w.at.me
	return min(left, int64(m.Capacity())-int64(s.memory.of(owner))-int64(promised)-int64(m.stays()-s.pinned.of(owner)))
}

// domainAt returns the domain of worker i with its guarantee and the bytes that its workers have
// reserved, if i is its first worker; else there is no guarantee.
func (m *Memory) domainAt(i int) (domain, guarantee, has uint64) {
	s := &m.l.workers[i]
	domain = s.domain.Load()
	if ownerPid(s.owner.Load()) == 0 || s.guarantee.Load() == 0 {
		return domain, 0, 0
	}
	has = m.commonBytes(domain)
	for k := range m.used() {
		o := &m.l.workers[k]
		owner := o.owner.Load()
		if ownerPid(owner) == 0 || o.domain.Load() != domain {
			continue
		}
		if k < i {
			return domain, 0, 0
		}
		guarantee = max(guarantee, o.guarantee.Load())
		has += o.memory.of(owner)
	}
	return domain, guarantee, has
}

// SetShare sets the worker's domain, the domain's guarantee of
// device memory, and its priority.
func (w *Worker) SetShare(domain, guarantee uint64, priority int) {
	s := w.reserver()
	s.domain.Store(domain)
	s.guarantee.Store(guarantee)
	s.priority.Store(int32(priority))
}

// Unreserve releases n bytes.
func (w *Worker) Unreserve(n uint64) { w.reserver().memory.Add(-n) }

// TrySpin reports whether the caller got one of the host's seats for spinning threads. A thread that got a seat returns
// it with EndSpin.
func (w *Worker) TrySpin() bool {
	for i := range w.memory.fixed.seats {
		s := &w.memory.l.seat[i%maxSeats]
		if s.Load() == 0 && s.CompareAndSwap(0, w.at.me) {
			return true
		}
	}
	return false
}

// EndSpin returns one seat of this process.
func (w *Worker) EndSpin() {
	for i := range w.memory.fixed.seats {
		if w.memory.l.seat[i%maxSeats].CompareAndSwap(w.at.me, 0) {
			return
		}
	}
}
