package bell

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/region"
	"pegasus/internal/testkit"
)

// pair returns both ends of a port in memory: sockets, like QEMU's.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "port")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// listen returns a port for the length of a test. The port's Conns come from a channel.
func listen(t *testing.T, reopen bool, ports <-chan *net.UnixConn) (p *Port, changes *atomic.Int32) {
	t.Helper()
	changes = new(atomic.Int32)
	p = Listen(t.Context(), func() (Conn, error) {
		select {
		case c := <-ports:
			return c, nil
		default:
			return nil, errors.New("no port")
		}
	}, reopen, func(error) { changes.Add(1) })
	return p, changes
}

// A port may come late, disappear, and come back; rings are received while it exists.
func TestPort(t *testing.T) {
	ports := make(chan *net.UnixConn, 1)
	p, changes := listen(t, true, ports)
	testkit.Eventually(t, "to be told that there is no port", func() bool { return changes.Load() == 1 })
	p.Ring() // lost
	<-p.Rings()
	for i := range int32(2) {
		ours, theirs := pair(t)
		ports <- ours
		testkit.Eventually(t, "life", p.Live)
		<-p.Rings()
		if n := changes.Load(); n != 2+2*i {
			t.Fatalf("told of %d changes", n)
		}
		for range 5 {
			theirs.Write([]byte("several at once"))
			<-p.Rings()
		}
		p.Ring()
		if n, err := theirs.Read(make([]byte, 100)); n != 1 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		theirs.Close()
		testkit.Eventually(t, "death", func() bool { return !p.Live() })
		<-p.Rings()
	}
}

// Ring never blocks if the other end does not read.
func TestRingFull(t *testing.T) {
	ports := make(chan *net.UnixConn, 1)
	ours, _ := pair(t)
	ours.SetWriteBuffer(1)
	ports <- ours
	p, _ := listen(t, true, ports)
	testkit.Eventually(t, "life", p.Live)
	for range 100000 {
		p.Ring()
	}
}

// Of endless rings only some are received.
func TestEndlessRings(t *testing.T) {
	ports := make(chan *net.UnixConn, 1)
	ours, theirs := pair(t)
	ports <- ours
	p, _ := listen(t, true, ports)
	go func() {
		for b := make([]byte, 4096); ; {
			if _, err := theirs.Write(b); err != nil {
				return
			}
		}
	}()
	start, n := time.Now(), 0
	for ; n < 50; n++ {
		<-p.Rings()
	}
	theirs.Close()
	if d := time.Since(start); d < time.Duration(n-5)*hearAgain {
		t.Errorf("heard %d times in %v", n, d)
	}
}

// A short burst of rings is received at once; continuous ringing is not.
func TestPace(t *testing.T) {
	var p Port
	now := time.Now()
	for i := range 10 * atOnce {
		if wait := p.pace(now); (wait > 0) != (i >= atOnce) {
			t.Fatalf("ring %d: nothing is heard for %v", i, wait)
		}
	}
	now = p.paced.Add(time.Hour)
	if p.pace(now) > 0 {
		t.Error("a ring after a pause has to wait")
	}
}

// side is an agent or a hub, with its work.
type side struct {
	sleeper *Sleeper
	port    *Port
	work    atomic.Int32
}

func (s *side) look() bool { return s.work.Swap(0) != 0 }

func (s *side) run(ctx context.Context, w Words) {
	for ctx.Err() == nil {
		if s.look() {
			s.sleeper.Worked()
		} else {
			s.sleeper.Sleep(ctx, w, s.look)
		}
	}
}

// Two sides with ports reach long sleeps, and wake each other.
func TestSleepers(t *testing.T) {
	mem := make([]byte, region.ControlBytes)
	g, h := region.NewGuest(mem), region.NewHost(mem)
	a, b := pair(t)
	ports := make(chan *net.UnixConn, 1)
	start := func(c *net.UnixConn, w Words) *side {
		p, _ := listen(t, true, ports)
		ports <- c
		testkit.Eventually(t, "life", p.Live)
		s := &side{port: p, sleeper: NewSleeper(p, nil)}
		go s.run(t.Context(), w)
		return s
	}
	agent := start(a, g)
	testkit.Eventually(t, "the agent waits", func() bool { return h.Bell() != region.NoBell })
	time.Sleep(200 * time.Millisecond)
	if h.Bell() != region.Awake {
		t.Errorf("the agent's way of waiting is %d while the hub has no port", h.Bell())
	}
	hub := start(b, h)
	asleep := func() bool { return g.Bell() == region.Asleep && h.Bell() == region.Asleep }
	testkit.Eventually(t, "both sleep", asleep)
	for i := range 10 {
		from, to, w := agent, hub, Words(g)
		if i%2 == 1 {
			from, to, w = hub, agent, h
		}
		to.work.Store(1)
		from.sleeper.Notify(w)
		testkit.Eventually(t, "it is seen", func() bool { return to.work.Load() == 0 }) // by the side that polls: no other takes it
		testkit.Eventually(t, "both sleep again", asleep)
	}
	b.Close()
	testkit.Eventually(t, "who can't be rung says so", func() bool { return h.Bell() == region.NoBell && g.Bell() == region.NoBell })
}

// Submitted functions run at once.
func TestEvents(t *testing.T) {
	p, _ := listen(t, true, nil)
	events := make(chan func())
	s := NewSleeper(p, events)
	done := false
	go func() { events <- func() { done = true } }()
	for !done {
		s.Sleep(t.Context(), nil, nil)
	}
}
