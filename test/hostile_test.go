package test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/test/seeds"
)

// TestMain lets the test's binary run as a hostile guest, in a process of its own.
func TestMain(m *testing.M) {
	acts := map[string]func(args []string) error{
		"scribble": scribble,
		"short":    shortGuest,
	}
	if act := acts[os.Getenv("PEGASUS_TEST_ACT")]; act != nil {
		if err := act(os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// actor returns the test's binary as one of the above.
func actor(act string, args ...any) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	for _, a := range args {
		cmd.Args = append(cmd.Args, fmt.Sprint(a))
	}
	cmd.Env = append(os.Environ(), "PEGASUS_TEST_ACT="+act)
	return cmd
}

func (h *host) socket(domain string) string {
	return filepath.Join(h.dir, "domains", domain+".sock")
}

// seeded returns a random source with its seed in the test's log.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seeds.Fixed(t), 1))
}

// raw is a guest without a library: it writes the bytes itself.
type raw struct {
	mem    []byte
	layout callbuf.Layout
	guest  *callbuf.Guest
	worker *net.UnixConn
	pid    int // of its worker
}

func connect(path string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
}

// enter performs a proper guest's rendezvous, up to the first call.
func enter(path string) (*raw, error) {
	c, err := connect(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Write(callbuf.Hello{Version: callbuf.Version}.Append(nil)); err != nil {
		return nil, err
	}
	w, fds, err := hear(c)
	if err != nil {
		return nil, err
	}
	if w.Result != 0 {
		return nil, fmt.Errorf("refused: %s", w.Message)
	}
	segment, socket := os.NewFile(uintptr(fds[0]), "segment"), os.NewFile(uintptr(fds[1]), "worker")
	defer segment.Close()
	defer socket.Close()
	conn, err := net.FileConn(socket)
	if err != nil {
		return nil, err
	}
	r := &raw{worker: conn.(*net.UnixConn), pid: int(w.WorkerPID)}
	if r.mem, err = callbuf.Map(segment, w.SegmentBytes); err != nil {
		r.worker.Close()
		return nil, err
	}
	if err = r.begin(); err != nil {
		r.leave()
		return nil, err
	}
	return r, nil
}

// hear reads a welcome and its file descriptors.
func hear(c *net.UnixConn) (w callbuf.Welcome, fds []int, err error) {
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	b, oob := make([]byte, callbuf.WelcomeBytes+1), make([]byte, 256)
	n, on, _, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return w, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		return w, nil, err
	}
	for i := range messages {
		got, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return w, nil, err
		}
		fds = append(fds, got...)
	}
	w, err = callbuf.ParseWelcome(b[:n])
	if err == nil && w.Result == 0 && len(fds) != callbuf.WelcomeFDs {
		err = fmt.Errorf("welcome with %d descriptors", len(fds))
	}
	return w, fds, err
}

func (r *raw) begin() (err error) {
	if r.guest, err = callbuf.Open(r.mem); err != nil {
		return err
	}
	r.layout = r.guest.Layout()
	m, err := r.propose(callbuf.NoWindow, callbuf.NoWindow)
	if err == nil && m.Result != 0 {
		err = cuda.Result(m.Result)
	}
	return err
}

// propose performs one round of the negotiation of addresses.
func (r *raw) propose(arena, device uint32) (callbuf.MapReply, error) {
	r.worker.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := r.worker.Write(callbuf.MapRequest{Arena: arena, Device: device}.Append(nil)); err != nil {
		return callbuf.MapReply{}, err
	}
	b := make([]byte, callbuf.MappedBytes+1)
	n, err := r.worker.Read(b)
	if err != nil {
		return callbuf.MapReply{}, err
	}
	return callbuf.ParseMapped(b[:n])
}

func (r *raw) leave() {
	r.worker.Close()
	callbuf.Unmap(r.mem)
}

// dropped reports whether the worker has hung up.
func (r *raw) dropped() bool {
	raw, err := r.worker.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
		n, _ := unix.Poll(p, 0)
		gone = n > 0
	})
	return gone
}

// word returns an aligned word of a segment.
func (r *raw) word(off uint64) *atomic.Uint64 { return segmentWord(r.mem, off) }

// Offsets that a guest must not write, or must write with care.
const (
	offTail = 0x0c0
	offHead = 0x100
)

// spoil writes a random word at a random place, preferring those that the worker reads.
func (r *raw) spoil(rng *rand.Rand) {
	l := &r.layout
	parts := [...]struct{ at, bytes uint64 }{
		{0, callbuf.HeaderBytes},
		{uint64(l.RingOffset), uint64(l.RingSlots) * callbuf.SlotBytes},
		{uint64(l.ReplyOffset), uint64(l.ReplySlots) * callbuf.ReplyBytes},
		{uint64(l.EventOffset), uint64(l.EventWords) * 8},
		{uint64(l.ReleaseOffset), uint64(l.ReleaseWords) * 4},
		{l.ArenaOffset, min(l.ArenaBytes, 1<<20)},
	}
	p := parts[rng.IntN(len(parts))]
	r.word(p.at + uint64(rng.Int64N(int64(p.bytes/8)))*8).Store(oddNumber(rng))
}

// oddNumber returns a number at which arithmetic tends to fail.
func oddNumber(rng *rand.Rand) uint64 {
	switch rng.IntN(5) {
	case 0:
		return rng.Uint64()
	case 1:
		return uint64(rng.IntN(70000))
	case 2:
		return 1<<rng.IntN(64) - uint64(rng.IntN(3)) + 1
	case 3:
		return ^uint64(rng.IntN(5000))
	}
	return 0
}

// publish puts data that looks like a packet where the worker reads next, with or without the proper protocol.
func (r *raw) publish(rng *rand.Rand) {
	i := uint32(r.word(offHead).Load())
	if rng.IntN(2) == 0 {
		i = uint32(r.word(offTail).Load())
	}
	i += uint32(rng.IntN(3))
	at := uint64(r.layout.RingOffset) + uint64(i&(r.layout.RingSlots-1))*callbuf.SlotBytes
	for k := uint64(8); k < callbuf.SlotBytes; k += 8 {
		r.word(at + k).Store(oddNumber(rng))
	}
	length := uint64(rng.IntN(120))
	if rng.IntN(20) == 0 {
		length = uint64(rng.IntN(65536))
	}
	r.word(at + 8).Store(uint64(rng.IntN(cuda.NumOps+2)) | length<<16 | uint64(rng.IntN(3))<<32 | uint64(rng.IntN(1100))<<48)
	r.word(at + 16).Store(uint64(rng.IntN(4)) << 32)
	r.word(at).Store(uint64(i) + 1)
}

// scribble connects repeatedly and writes into every shared word, from several threads at once. Its arguments: socket,
// duration, seed.
func scribble(args []string) error {
	d, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	sessions := 0
	for end := time.Now().Add(d); time.Now().Before(end) || sessions < 4; sessions++ { // a slow machine serves only a few
		r, err := enter(args[0])
		if err != nil {
			return err
		}
		// Short sessions are ended by the worker, others by this process.
		until := time.Now().Add(time.Duration(20+seed%300) * time.Millisecond)
		var all sync.WaitGroup
		for k := range uint64(3) {
			rng := rand.New(rand.NewPCG(seed, k))
			all.Go(func() { r.harm(rng, until) })
		}
		all.Wait()
		r.leave()
		seed = seed*6364136223846793005 + 1442695040888963407
	}
	fmt.Println(sessions)
	return nil
}

// harm attacks in bursts, to break the worker rather than to keep the machine busy.
func (r *raw) harm(rng *rand.Rand, until time.Time) {
	gentle := rng.IntN(2) == 0 // proper packets with improper contents live longer
	x := newImproper(rng, r.layout.ArenaBytes, r.layout.ReplySlots)
	for time.Now().Before(until) && !r.dropped() {
	burst:
		for range 200 {
			switch n := rng.IntN(1000); {
			case gentle && n < 998:
				h, payload := x.packet()
				if r.guest.Send(h, payload, func() error { return errImpatient }) != nil {
					r.publish(rng) // the ring looks full: continue at the worker's position
					break burst
				}
			case n < 700:
				r.spoil(rng)
			default:
				r.publish(rng)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// decent is a correct guest that checks its results.
type decent struct {
	loaded
	modest bool // others of its domain may use up the memory
	rounds atomic.Int64
}

func (h *host) decent(domain string) *decent {
	h.t.Helper()
	return &decent{loaded: load(h.t, h.dial(domain)), modest: domain == "bad"}
}

// work allocates, copies in, fills, computes, copies out and frees until stop is set.
func (d *decent) work(stop *atomic.Bool, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	for !stop.Load() {
		if err := d.round(rng); err != nil {
			return err
		}
		d.rounds.Add(1)
	}
	return nil
}

func (d *decent) round(rng *rand.Rand) error {
	n := 4096 + rng.IntN(256<<10)
	at, err := d.Alloc(uint64(n))
	if d.modest && errors.Is(err, cuda.ErrorOutOfMemory) {
		return nil
	}
	if err != nil {
		return err
	}
	want, got := make([]byte, n), make([]byte, n)
	for i := range want {
		want[i] = byte(i) ^ byte(n)
	}
	part := rng.IntN(n)
	err = errors.Join(d.CopyIn(at, want), d.Fill(0, at, 'x', uint64(part)), d.launch("store", at, 0x21212121), d.CopyOut(got, at))
	for i := range part {
		want[i] = 'x'
	}
	copy(want, "!!!!")
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("what came back is not what was written")
	}
	return errors.Join(err, d.Free(at))
}

// rate returns the rounds per second that decent guests make together.
func rate(all []*decent, d time.Duration) float64 {
	sum := func() (n int64) {
		for _, d := range all {
			n += d.rounds.Load()
		}
		return n
	}
	start, before := time.Now(), sum()
	time.Sleep(d)
	return float64(sum()-before) / time.Since(start).Seconds()
}

const hostileDomains = oneAccelerator + `
[[domain]]
name = "bad"
memory = "512MiB"
[[domain]]
name = "good"
`

// Guests that write any value anywhere in the memory shared with their workers harm themselves only.
func TestHostileSegment(t *testing.T) { hostileSegment(t, 3*time.Second) }

func hostileSegment(t *testing.T, d time.Duration) {
	rng := seeded(t)
	h := startHost(t, hostileDomains)
	all := []*decent{h.decent("good"), h.decent("bad")} // one shares the domain with the hostile ones
	before := h.quiet()
	var stop atomic.Bool
	var working sync.WaitGroup
	for i, g := range all {
		working.Go(func() {
			if err := g.work(&stop, uint64(i)); err != nil {
				t.Errorf("a decent guest: %v", err)
			}
		})
	}
	calm := rate(all, time.Second)
	var bad []*exec.Cmd
	var said [2]bytes.Buffer
	for i := range said {
		cmd := actor("scribble", h.socket("bad"), d, rng.Uint64())
		cmd.Stdout, cmd.Stderr = &said[i], &said[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, cmd)
	}
	troubled := rate(all, d)
	sessions := 0
	for i, cmd := range bad {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a hostile guest: %v\n%s", err, tail(said[i].Bytes(), 20))
		}
		n, _ := strconv.Atoi(strings.TrimSpace(said[i].String()))
		sessions += n
	}
	eventually(t, soon, "the hostile guests' workers are gone", func() bool { return h.domains()["bad"].Processes == 1 })
	stop.Store(true)
	working.Wait()
	// The host's cores are shared, so the guests' own load counts: this measures only that no decent guest is blocked,
	// not scheduling.
	t.Logf("%d hostile sessions; decent guests made %.0f rounds/s before and %.0f (%.0f %%) during", sessions, calm, troubled, 100*troubled/calm)
	if sessions < 8 || troubled < calm/100 {
		t.Errorf("%d hostile sessions held decent guests up: %.0f rounds/s, then %.0f", sessions, calm, troubled)
	}
	for _, g := range all {
		if err := g.Context.Destroy(); err != nil {
			t.Error(err)
		}
	}
	for name, dom := range h.domains() {
		if dom.Memory != 0 {
			t.Errorf("%s is left with %d bytes", name, dom.Memory)
		}
	}
	if log := h.said(); !strings.Contains(log, "session dropped") || !strings.Contains(log, "guest broke the protocol") {
		t.Error("the log doesn't say why sessions were dropped")
	}
	h.sound()
	h.settled(before)
}
