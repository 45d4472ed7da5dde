package acceltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// Crowd is a set of devices that share a memory and may allocate more than it holds: the excess is evicted.
type Crowd struct {
	Devices []accel.Device
	// Away returns the number of evicted bytes of a device.
	Away func(i int) uint64
	// Left returns the bytes of the memory that are in use, and the bytes that all devices have reserved.
	Left func() (used, had uint64)
}

// CrowdOf returns a Crowd of devices with their memory accounted in page.
func CrowdOf[D interface {
	accel.Device
	Evicted() uint64
}](devices []D, page interface {
	Used() uint64
	Reserved() uint64
}) Crowd {
	c := Crowd{
		Away: func(i int) uint64 { return devices[i].Evicted() },
		Left: func() (uint64, uint64) { return page.Used(), page.Reserved() },
	}
	for _, d := range devices {
		c.Devices = append(c.Devices, d)
	}
	return c
}

// RunSwapping tests eviction between devices. open returns a Crowd of n devices, with an allocation unit of at most 2
// MiB, which close when the test ends.
func RunSwapping(t *testing.T, open func(t testing.TB, n int, memory, swap uint64) Crowd) {
	for _, part := range []struct {
		name string
		n    int
		test func(t *testing.T, c Crowd)
	}{
		{"Contents", 3, testContents}, {"WithoutRoom", 2, testWithoutRoom}, {"Absent", 2, testAbsent}, {"WaitingForTheGuest", 2, testWaitingForTheGuest}, {"Pipeline", 2, testPipeline}, {"Contexts", 2, testContexts},
	} {
		t.Run(part.name, func(t *testing.T) {
			c := open(t, part.n, crowdMemory, 2*crowdMemory)
			part.test(t, c)
			for i := range 100 {
				if used, had := c.Left(); used == 0 && had == 0 {
					break
				} else if i == 99 {
					t.Errorf("of the memory %d bytes are in use at the end, of %d that somebody has", used, had)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
}

// crowdMemory is the memory that the devices share. A tenth of it is reserved for eviction, so one device may have
// 18 MiB.
const crowdMemory = 20 << 20

// user is a context, a module in it, and a stream.
type user struct {
	ctx accel.Context
	m   accel.Module
	s   accel.Stream
}

func (c *Crowd) user(t *testing.T, i int) *user {
	t.Helper()
	x, r := c.Devices[i].NewContext(0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	m, log, r := x.LoadModule([]byte(kernels))
	if r != cuda.Success {
		t.Fatal(r, log)
	}
	s, r := x.NewStream(1, 0)
	if r != cuda.Success {
		t.Fatal(r)
	}
	return &user{x, m, s}
}

// submit submits work, and returns the answer that receives its result.
func (u *user) submit(w accel.Work) (answer, error) {
	a := newAnswer()
	if r := u.ctx.Submit(u.s, w, a.done); r != cuda.Success {
		return nil, fmt.Errorf("submit %T: %w", w, r)
	}
	return a, nil
}

func (a answer) await() error {
	select {
	case r := <-a:
		if r != cuda.Success {
			return r
		}
		return nil
	case <-time.After(patience):
		return errors.New("nobody called back")
	}
}

// do submits work and waits for it.
func (u *user) do(w accel.Work) error {
	a, err := u.submit(w)
	if err == nil {
		err = a.await()
	}
	return err
}

func (u *user) destroy() {
	gone := make(chan struct{})
	u.ctx.Destroy(func() { close(gone) })
	<-gone
}

func (u *user) alloc(t *testing.T, n uint64) uint64 {
	t.Helper()
	at, r := u.ctx.Alloc(n)
	if r != cuda.Success {
		t.Fatalf("%d bytes: %v", n, r)
	}
	return at
}

// must ends the test at an error. Only the test's own goroutine may call it.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (u *user) read(from uint64, n int) ([]byte, error) {
	out := make([]byte, n)
	return out, u.do(linear(host(out), at(from), n))
}

func (u *user) number(from uint64) (uint32, error) {
	b, err := u.read(from, 4)
	return binary.LittleEndian.Uint32(b), err
}

// piece is an allocation and its expected content.
type piece struct {
	at   uint64
	want []byte
}

// addTo returns a launch that adds n to words of a piece, and updates the expected content.
func (u *user) addTo(p *piece, word, words int, n uint32) *accel.Launch {
	from := p.at + 4*uint64(word)
	l := adding(u.m, from, from, n)
	l.Grid[0], l.Block[0] = uint32(words)/64, 64
	for i := range words {
		b := p.want[4*(word+i):]
		binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)+n)
	}
	return l
}

// testContents lets devices allocate, copy, fill, launch, replay graphs and free at random, with several operations in
// flight. Each device must find its last written bytes at the same addresses.
func testContents(t *testing.T, c Crowd) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	most := make([]uint64, len(c.Devices))
	// The initial allocations exceed the memory together, also where one program ends before the next one begins.
	const enough = 12 << 20
	users, begins := make([]*user, len(c.Devices)), make([]*piece, len(c.Devices))
	for i := range c.Devices {
		users[i] = c.user(t, i)
		begins[i] = &piece{at: users[i].alloc(t, enough), want: make([]byte, enough)}
	}
	for i, u := range users {
		all.Go(func() {
			defer u.destroy()
			if err := u.program(rand.New(rand.NewPCG(seed, uint64(i))), begins[i], func() { most[i] = max(most[i], c.Away(i)) }); err != nil {
				t.Errorf("device %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if most[0]+most[1]+most[2] == 0 {
		t.Error("nothing ever left the device")
	}
}

// whole returns the most memory that an allocation of n bytes takes.
func whole(n int) int { return (n + 2<<20 - 1) &^ (2<<20 - 1) }

func (u *user) program(r *rand.Rand, begins *piece, look func()) error {
	live, total := []*piece{begins}, whole(len(begins.want))
	var flight []answer
	settle := func() error {
		for _, a := range flight {
			if err := a.await(); err != nil {
				return err
			}
		}
		flight = flight[:0]
		return nil
	}
	give := func(w accel.Work) error {
		a, err := u.submit(w)
		flight = append(flight, a)
		return err
	}
	const words = 512
	for range 120 {
		var err error
		look()
		switch k := r.IntN(10); {
		case k < 2 || len(live) == 0:
			n := 4 * (words + r.IntN(1<<20))
			if r.IntN(3) == 0 {
				n = 4 * (words + r.IntN(2000))
			}
			if total+whole(n) > 16<<20 {
				continue
			}
			p := &piece{want: make([]byte, n)}
			var res cuda.Result
			if p.at, res = u.ctx.Alloc(uint64(n)); res != cuda.Success {
				return fmt.Errorf("%d bytes: %w", n, res)
			}
			live, total = append(live, p), total+whole(n)
		case k < 3:
			i := r.IntN(len(live))
			p := live[i]
			live, total = append(live[:i:i], live[i+1:]...), total-whole(len(p.want))
			if res := u.ctx.Free(p.at, nil); res != cuda.Success {
				return res
			}
		case k < 4:
			p := live[r.IntN(len(live))]
			for i := 0; i < len(p.want); i += 97 {
				p.want[i] = byte(r.Uint32())
			}
			err = give(linear(at(p.at), host(bytes.Clone(p.want)), len(p.want)))
		case k < 5:
			p := live[r.IntN(len(live))]
			err = give(accel.Fill{Address: p.at, Width: uint64(len(p.want)), Height: 1, Value: 7, ElementSize: 1})
			copy(p.want, bytes.Repeat([]byte{7}, len(p.want)))
		case k < 6:
			p, q := live[r.IntN(len(live))], live[r.IntN(len(live))]
			if n := min(len(p.want), len(q.want)); p != q {
				err = give(linear(at(p.at), at(q.at), n))
				copy(p.want, q.want[:n])
			}
		case k < 7:
			g := u.ctx.Capabilities().Graphs
			if g == nil {
				continue
			}
			p, q := live[r.IntN(len(live))], live[r.IntN(len(live))]
			first := u.addTo(p, 0, words, 3)
			copied := linear(at(q.at), at(p.at), words)
			if p != q {
				copy(q.want, p.want[:words])
			}
			nodes := []accel.GraphNode{{Work: first}, {Work: u.addTo(p, words/2, words/2, 5), After: []uint32{0}}}
			if p != q {
				nodes[1].After = nil
				nodes = append(nodes[:1:1], accel.GraphNode{Work: &copied, After: []uint32{0}}, accel.GraphNode{Work: nodes[1].Work, After: []uint32{1}})
			}
			graph, res := g.NewGraph(nodes, nil)
			if res != cuda.Success {
				return res
			}
			err = give(accel.Replay{Graph: graph})
			defer graph.Destroy()
		default:
			for _, p := range live {
				for range 2 {
					if err == nil {
						err = give(u.addTo(p, r.IntN(len(p.want)/4-words+1), words, r.Uint32()))
					}
				}
			}
		}
		if err == nil && (len(flight) > 20 || r.IntN(3) == 0) {
			err = settle()
		}
		if err == nil && len(live) > 0 && r.IntN(2) == 0 {
			p := live[r.IntN(len(live))]
			var got []byte
			if got, err = u.read(p.at, len(p.want)); err == nil && !bytes.Equal(got, p.want) {
				err = fmt.Errorf("%d bytes at %#x are not what was written", len(got), p.at)
			}
		}
		if err != nil {
			return err
		}
	}
	return settle()
}

// testWithoutRoom checks that one device can compute with all memory that it may allocate, that a larger allocation
// fails, and that an allocation without room on the device begins evicted.
func testWithoutRoom(t *testing.T, c Crowd) {
	a, b := c.user(t, 0), c.user(t, 1)
	defer a.destroy()
	defer b.destroy()
	first := a.alloc(t, 16<<20)
	if _, r := a.ctx.Alloc(4 << 20); r != cuda.ErrorOutOfMemory {
		t.Errorf("more than a kernel could use: %v", r)
	}
	second := b.alloc(t, 16<<20)
	if c.Away(1) != 16<<20 {
		t.Errorf("%d bytes are away of what had no room", c.Away(1))
	}
	if got, err := b.read(second+(15<<20), 4096); err != nil || !bytes.Equal(got, make([]byte, 4096)) {
		t.Errorf("what had no room holds something: %v", err)
	}
	must(t, a.do(accel.Fill{Address: first, Width: 4 << 20, Height: 1, Value: 1, ElementSize: 4}))
	must(t, b.do(accel.Fill{Address: second, Width: 4 << 20, Height: 1, Value: 2, ElementSize: 4}))
	for range 3 {
		for i, u := range []*user{a, b} {
			at := []uint64{first, second}[i] + 12<<20
			must(t, u.do(*adding(u.m, at, at, 10)))
			if c.Away(i) != 0 {
				t.Errorf("a kernel has run while %d bytes were away", c.Away(i))
			}
		}
	}
	for i, u := range []*user{a, b} {
		if n, err := u.number([]uint64{first, second}[i] + 12<<20); err != nil || n != uint32(31+i) {
			t.Errorf("device %d has %d, %v", i, n, err)
		}
	}
}

// testAbsent frees evicted memory, and destroys a context that has evicted memory.
func testAbsent(t *testing.T, c Crowd) {
	a, b := c.user(t, 0), c.user(t, 1)
	defer b.destroy()
	big, small := a.alloc(t, 8<<20), a.alloc(t, 1000)
	must(t, a.do(accel.Fill{Address: big, Width: 2 << 20, Height: 1, Value: 7, ElementSize: 4}))
	must(t, a.do(accel.Fill{Address: small, Width: 250, Height: 1, Value: 9, ElementSize: 4}))
	other := b.alloc(t, 14<<20)
	must(t, b.do(*adding(b.m, other, other, 1)))
	if c.Away(0) == 0 {
		t.Fatal("nothing is away")
	}
	if r := a.ctx.Free(big, nil); r != cuda.Success {
		t.Fatal(r)
	}
	if r := a.ctx.Free(small, nil); r != cuda.Success {
		t.Fatal(r)
	}
	for range 3 { // evicted memory is zeroed, too, before its next owner gets it
		again := a.alloc(t, 1000)
		if got, err := a.read(again, 1000); err != nil || !bytes.Equal(got, make([]byte, 1000)) {
			t.Errorf("new memory holds something: %v", err)
		}
		must(t, b.do(*adding(b.m, other, other, 1)))
	}
	a.alloc(t, 6<<20)
	a.destroy()
	if c.Away(0) != 0 {
		t.Errorf("%d bytes are away of a context that is no more", c.Away(0))
	}
	if n, err := b.number(other); err != nil || n != 4 {
		t.Errorf("the other has %d, %v", n, err)
	}
}

// testWaitingForTheGuest checks that a request for memory doesn't block a process with work that waits for the process
// itself.
func testWaitingForTheGuest(t *testing.T, c Crowd) {
	a, b := c.user(t, 0), c.user(t, 1)
	defer a.destroy()
	defer b.destroy()
	mine, other := a.alloc(t, 12<<20), b.alloc(t, 12<<20)
	must(t, a.do(*adding(a.m, mine, mine, 1)))
	due := make(chan func(), 1)
	_, err := a.submit(accel.HostFunc{Due: func(_ cuda.Result, finished func()) { due <- finished }})
	must(t, err)
	behind, err := a.submit(*adding(a.m, mine, mine, 1))
	must(t, err)
	finished := <-due
	asking := make(chan error, 1)
	go func() { asking <- b.do(*adding(b.m, other, other, 5)) }()
	time.Sleep(50 * time.Millisecond) // so that the request is pending; if it is not, the test covers less
	var more []answer
	for range 3 {
		one, err := a.submit(*adding(a.m, mine, mine, 1)) // only this process can let the stream continue
		must(t, err)
		more = append(more, one)
	}
	finished()
	for _, one := range append(more, behind) {
		must(t, one.await())
	}
	must(t, <-asking)
	if n, err := a.number(mine); err != nil || n != 5 {
		t.Errorf("one has %d, %v", n, err)
	}
	if n, err := b.number(other); err != nil || n != 5 {
		t.Errorf("the other has %d, %v", n, err)
	}
}

// testPipeline checks that a process that always has work in flight evicts memory, too.
func testPipeline(t *testing.T, c Crowd) {
	a, b := c.user(t, 0), c.user(t, 1)
	defer a.destroy()
	defer b.destroy()
	mine, other := a.alloc(t, 12<<20), b.alloc(t, 12<<20)
	enough := make(chan struct{})
	var count uint32
	over := make(chan error, 1)
	go func() {
		var flight []answer
		steps := launch(a.m, "count", binary.LittleEndian.AppendUint32(words64(mine+64), 2_000_000)) // takes longer than its submission
		for {
			_, err := a.submit(steps)
			var one answer
			if err == nil {
				one, err = a.submit(*adding(a.m, mine, mine, 1))
			}
			if err != nil {
				over <- err
				return
			}
			count++
			if flight = append(flight, one); len(flight) > 8 {
				if err := flight[0].await(); err != nil {
					over <- err
					return
				}
				flight = flight[1:]
			}
			select {
			case <-enough:
				for _, one := range flight {
					one.await()
				}
				over <- nil
				return
			default:
			}
		}
	}()
	var err error
	for range 4 {
		if err == nil {
			err = b.do(*adding(b.m, other, other, 1))
		}
	}
	close(enough)
	must(t, <-over)
	must(t, err)
	if n, err := b.number(other); err != nil || n != 4 {
		t.Errorf("who asked has %d, %v", n, err)
	}
	if n, err := a.number(mine); err != nil || n != count {
		t.Errorf("who always computes has %d, %v, want %d", n, err, count)
	}
}

// testContexts creates and destroys contexts of a process while its memory is moved, and checks that a destroyed context
// frees only its own memory.
func testContexts(t *testing.T, c Crowd) {
	stays, b := c.user(t, 0), c.user(t, 1)
	defer stays.destroy()
	defer b.destroy()
	mine, other := stays.alloc(t, 4<<20), b.alloc(t, 14<<20)
	asking, enough := make(chan error, 1), make(chan struct{})
	go func() {
		for {
			err := b.do(*adding(b.m, other, other, 1))
			select {
			case <-enough:
				asking <- err
				return
			default:
			}
			if err != nil {
				asking <- err
				return
			}
		}
	}()
	for i := range uint32(8) {
		goes := c.user(t, 0)
		at := goes.alloc(t, 6<<20)
		must(t, goes.do(accel.Fill{Address: at, Width: 3 << 19, Height: 1, Value: i, ElementSize: 4}))
		if i%2 == 0 {
			must(t, stays.do(*adding(stays.m, mine, mine, 1)))
		}
		if n, err := goes.number(at + 5<<20); err != nil || n != i {
			t.Errorf("a context has %d, %v, want %d", n, err, i)
		}
		goes.destroy()
	}
	close(enough)
	must(t, <-asking)
	if n, err := stays.number(mine); err != nil || n != 4 {
		t.Errorf("the context that stays has %d, %v", n, err)
	}
}
