package residence

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pegasus/test/seeds"
)

// machine is a device with a given number of bytes, and the processes that share it.
type machine struct {
	t              *testing.T
	mu             sync.Mutex
	room, areaRoom uint64
	processes      []*process
	queued         int64
	pressing       int           // requests for guaranteed bytes
	compute, out   sync.Mutex    // the engines
	tick           time.Duration // bounds each sleep of a requester
}

// process is a Ledger and a Store. It has its memory by address, on the device and in host memory.
type process struct {
	m            *machine
	id           int
	share        Owner
	resident     uint64
	stashed      uint64
	waits        int64
	asked        Ask
	hears        chan struct{}
	device, host map[uint64][]byte
	executing    int
	set          *Set
	fails        error
}

func newMachine(t *testing.T, room, area uint64, n int) *machine {
	m := &machine{t: t, room: room, areaRoom: area, tick: 20 * time.Microsecond}
	for i := range n {
		p := &process{m: m, id: i, hears: make(chan struct{}, 1), device: map[uint64][]byte{}, host: map[uint64][]byte{}}
		p.share = Owner{ID: i, Domain: uint64(i)}
		m.processes = append(m.processes, p)
	}
	for _, p := range m.processes {
		p.set = New(p, p, nil)
		t.Cleanup(p.set.Close)
	}
	return m
}

func (m *machine) sums() (resident, stashed uint64) {
	for _, p := range m.processes {
		resident, stashed = resident+p.resident, stashed+p.stashed
	}
	return resident, stashed
}

// locked runs f with the ledger locked.
func (p *process) locked(f func()) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	f()
}

func (p *process) Occupy(n uint64) (ok bool) {
	p.locked(func() {
		if all, _ := p.m.sums(); all+n <= p.m.room {
			p.resident, ok = p.resident+n, true
		}
	})
	return ok
}
func (p *process) ForceOccupy(n uint64) { p.locked(func() { p.resident += n }) }
func (p *process) Vacate(n uint64)      { p.locked(func() { p.resident -= n }) }
func (p *process) OccupyHost(n uint64) (ok bool) {
	p.locked(func() {
		if _, all := p.m.sums(); all+n <= p.m.areaRoom {
			p.resident, p.stashed, ok = p.resident-n, p.stashed+n, true
		}
	})
	return ok
}
func (p *process) VacateHost(n uint64) { p.locked(func() { p.stashed -= n }) }
func (p *process) Free() (n int64) {
	p.locked(func() { all, _ := p.m.sums(); n = int64(p.m.room) - int64(all) })
	return n
}
func (p *process) Others(to []Owner) []Owner {
	p.locked(func() {
		for _, o := range p.m.processes {
			if o != p {
				s := o.share
				s.Resident = o.resident
				to = append(to, s)
			}
		}
	})
	return to
}
func (p *process) Queue()   { p.locked(func() { p.m.queued++; p.waits = p.m.queued }) }
func (p *process) Unqueue() { p.locked(func() { p.waits = 0 }) }
func (p *process) Ahead() (owner int, since int64, ok bool) {
	p.locked(func() {
		owner, since = p.id, p.waits
		for _, o := range p.m.processes {
			if o.waits != 0 && (since == 0 || o.waits < since) {
				owner, since = o.id, o.waits
			}
		}
	})
	return owner, since, owner != p.id
}
func (p *process) MayGive() (n uint64) {
	p.locked(func() { n = p.resident - min(p.share.Guarantee, p.resident) })
	return n
}
func (p *process) Touch() { p.locked(func() { p.share.Used++ }) }
func (p *process) Ask(a Ask) {
	o := p.m.processes[a.Owner]
	p.locked(func() {
		o.asked = a
		if a.Pressing {
			p.m.pressing++
		}
	})
	o.Wake()
}
func (p *process) Asking(i int) (yes bool) {
	p.locked(func() { yes = p.m.processes[i].asked.Bytes != 0 })
	return yes
}
func (p *process) Withdraw(i int)              { p.locked(func() { p.m.processes[i].asked = Ask{} }) }
func (p *process) AwaitAnswer(d time.Duration) { time.Sleep(min(d, p.m.tick)) }
func (p *process) Asked() (a Ask, ok bool) {
	p.locked(func() { a = p.asked })
	return a, a.Bytes != 0
}
func (p *process) Answer() { p.Withdraw(p.id) }
func (p *process) AwaitAsk(d time.Duration) {
	select {
	case <-p.hears:
	case <-time.After(d):
	}
}
func (p *process) Wake() {
	select {
	case p.hears <- struct{}{}:
	default:
	}
}
func (p *process) Carry(f func()) {
	p.m.out.Lock()
	defer p.m.out.Unlock()
	f()
}

// Evict and Retrieve fail the test if a request is executing.
func (p *process) Evict(addr, n uint64) error    { return p.move(p.device, p.host, addr, n) }
func (p *process) Retrieve(addr, n uint64) error { return p.move(p.host, p.device, addr, n) }

func (p *process) move(from, to map[uint64][]byte, addr, n uint64) error {
	time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond)
	if p.fails != nil {
		return p.fails
	}
	p.locked(func() {
		if p.executing > 0 {
			p.m.t.Errorf("process %d: memory is moved while %d requests are executed", p.id, p.executing)
		}
		if b := from[addr]; b != nil {
			if to[addr] = b; uint64(len(b)) != n {
				p.m.t.Errorf("%d bytes of %d are moved", n, len(b))
			}
			delete(from, addr)
		} else if to[addr] == nil {
			to[addr] = make([]byte, n) // never touched
		} else {
			p.m.t.Errorf("process %d: memory at %#x is where it is to be moved to", p.id, addr)
		}
	})
	return nil
}

// at returns the memory of an allocation at its present home.
func (p *process) at(addr, n uint64) (b []byte) {
	where := p.device
	if p.set.Absent(addr) {
		where = p.host
	}
	p.locked(func() {
		if where[addr] == nil {
			where[addr] = make([]byte, n)
		}
		b = where[addr]
	})
	return b
}

func (p *process) execute(by int) { p.locked(func() { p.executing += by }) }

// Processes that together have three times the device's memory allocate, copy, launch and free at random. A kernel finds
// all its memory on the device, no allocation is moved while a request executes, every byte has its last written value,
// the ledger's sums are right, no guaranteed byte is requested, and every process ends.
func TestRandomPrograms(t *testing.T) {
	seed := seeds.Fixed(t)
	m := newMachine(t, 900, 100, 6)
	m.processes[1].share.Guarantee = 150
	m.processes[2].share.Priority = 3
	var all sync.WaitGroup
	for _, p := range m.processes {
		all.Go(func() { p.live(rand.New(rand.NewPCG(seed, uint64(p.id))), 300) })
	}
	all.Wait()
	if resident, stashed := m.sums(); resident+stashed != 0 {
		t.Errorf("%d bytes on the device and %d in the area are left", resident, stashed)
	}
	if m.pressing > 0 {
		t.Errorf("%d requests for guaranteed bytes", m.pressing)
	}
}

func (p *process) live(r *rand.Rand, steps int) {
	const most = 450
	type allocation struct{ addr, n, value uint64 }
	var mine []allocation
	var total, next uint64
	check := func(a allocation, b []byte) {
		if v := binary.LittleEndian.Uint64(b); v != a.value {
			p.m.t.Errorf("process %d: %d at %#x, want %d", p.id, v, a.addr, a.value)
		}
	}
	for range steps {
		switch k := r.IntN(8); {
		case k < 2:
			n := uint64(8 + r.IntN(120))
			if total+n > most {
				continue
			}
			if err := p.set.Add(next, n, r.IntN(20) == 0, nil); err != nil {
				p.m.t.Error(err)
				return
			}
			p.set.Loosen(next)
			mine = append(mine, allocation{next, n, 0})
			next, total = next+1000, total+n
		case k < 3 && len(mine) > 0:
			i := r.IntN(len(mine))
			p.set.Remove(mine[i].addr)
			p.locked(func() { delete(p.device, mine[i].addr); delete(p.host, mine[i].addr) })
			total -= mine[i].n
			mine = slices.Delete(mine, i, i+1)
		case k < 5 && len(mine) > 0: // a copy
			a := &mine[r.IntN(len(mine))]
			p.set.Begin()
			p.execute(1)
			b := p.at(a.addr, a.n)
			check(*a, b)
			a.value = r.Uint64()
			binary.LittleEndian.PutUint64(b, a.value)
			p.execute(-1)
			p.set.End(false)
		case k < 8: // a launch
			release := func() {}
			if r.IntN(2) == 0 { // else the engine has been granted to another process, too: this one did not release it
				p.m.compute.Lock()
				release = p.m.compute.Unlock
			}
			if err := p.set.BeginKernel(func() bool { return false }); err != nil {
				p.m.t.Errorf("process %d with %d bytes: %v", p.id, total, err)
				release()
				return
			}
			p.execute(1)
			if p.set.Away() != 0 {
				p.m.t.Errorf("process %d computes with %d bytes away", p.id, p.set.Away())
			}
			for i := range mine {
				b := p.at(mine[i].addr, mine[i].n)
				check(mine[i], b)
				mine[i].value++
				binary.LittleEndian.PutUint64(b, mine[i].value)
			}
			p.execute(-1)
			p.set.End(true)
			release()
		}
	}
	for _, a := range mine {
		p.set.Remove(a.addr)
	}
}

// While a kernel runs, new memory is on the device, since the kernel could receive its address.
func TestAllocationBesideAKernel(t *testing.T) {
	m := newMachine(t, 100, 0, 2)
	a, b := m.processes[0], m.processes[1]
	for p, n := range map[*process]uint64{a: 40, b: 60} {
		if err := p.set.Add(0, n, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.set.BeginKernel(nil); err != nil {
		t.Fatal(err)
	}
	if err := a.set.Add(1000, 30, false, nil); err != nil || a.set.Away() != 0 || b.set.Away() != 60 {
		t.Errorf("%v, %d bytes away, %d of the other's", err, a.set.Away(), b.set.Away())
	}
	a.set.End(true)
}

// BeginKernel returns ErrNoRoom if no process has evictable memory.
func TestNoRoom(t *testing.T) {
	m := newMachine(t, 100, 0, 2)
	a, b := m.processes[0], m.processes[1]
	if err := b.set.Add(0, 80, true, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.set.Add(0, 50, false, nil); err != nil {
		t.Fatal(err)
	}
	calls := 0
	err := a.set.BeginKernel(func() bool { calls++; return calls > 50 })
	if !errors.Is(err, ErrNoRoom) {
		t.Errorf("%v, want %v", err, ErrNoRoom)
	}
	a.set.Remove(0)
	if err := a.set.BeginKernel(nil); err != nil {
		t.Error(err)
	}
	a.set.End(true)
}

// A process with unmovable memory keeps it, and other processes choose another victim.
func TestMoveFails(t *testing.T) {
	m := newMachine(t, 100, 0, 3)
	a, b, c := m.processes[0], m.processes[1], m.processes[2]
	b.fails = errors.New("broken")
	for _, p := range []*process{b, c} {
		if err := p.set.Add(0, 50, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.set.Add(0, 50, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.set.BeginKernel(nil); err != nil || b.set.Away() != 0 || c.set.Away() != 50 {
		t.Errorf("%v, %d and %d bytes away", err, b.set.Away(), c.set.Away())
	}
	a.set.End(true)
}
