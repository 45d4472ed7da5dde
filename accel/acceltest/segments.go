package acceltest

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/cuda"
)

// segmentBytes is not a multiple of a device's page size.
const segmentBytes = 5<<20 + 4096

// domain is the state of a segment that the processes of a domain share.
type domain struct {
	*bench
	file *os.File

	mu              sync.Mutex
	holders         map[*process]uint32
	claimed         *process
	lost, forgotten bool
	refuse          cuda.Result
	used            [accel.NumClasses]int64
	leaves          func() // called when a process begins to leave the segment
}

// process stands for a process of the domain. The tests use one device for several of them, which the device can't
// detect.
type process struct {
	*domain
	id uint32
}

const segmentAt = 8192 // offset in the file

func newDomain(b *bench) *domain {
	b.Helper()
	fd, err := unix.MemfdCreate("segments", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	d := &domain{bench: b, file: os.NewFile(uintptr(fd), "segments"), holders: map[*process]uint32{}}
	b.Cleanup(func() { d.file.Close() })
	if err := d.file.Truncate(segmentAt + segmentBytes + 4096); err != nil {
		b.Fatal(err)
	}
	return d
}

func (d *domain) process(id uint32) *process { return &process{d, id} }

func (p *process) segment() accel.DeviceSegment {
	return accel.DeviceSegment{ID: p.id, Tag: 77, Bytes: segmentBytes, File: p.file, Offset: segmentAt, SegmentState: p}
}

func (p *process) Claim(leaves bool) cuda.Result {
	if leaves && p.leaves != nil {
		p.leaves()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claimed != nil {
		p.Errorf("process %d claims what process %d has claimed", p.id, p.claimed.id)
	}
	if p.refuse == cuda.Success || leaves {
		p.claimed = p
		return cuda.Success
	}
	return p.refuse
}

// claims fails the test unless the process holds the claim. p.mu is held.
func (p *process) claims() {
	if p.claimed != p {
		p.Errorf("process %d hasn't claimed what it does", p.id)
	}
}

func (p *process) Yield() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims()
	p.claimed = nil
}

func (p *process) Holders() (all []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, id := range p.holders {
		if other != p {
			all = append(all, id)
		}
	}
	return all
}

func (p *process) Hold(id uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims()
	p.holders[p] = id
	p.lost = true
}

func (p *process) Leave(stored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims()
	delete(p.holders, p)
	if stored {
		p.lost = false
	}
}

func (p *process) Stored() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lost
}

func (p *process) Clear() error {
	return unix.Fallocate(int(p.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, segmentAt, segmentBytes)
}

func (p *process) Wanted() bool { return !p.forgotten }

func (p *process) Used(u accel.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[u.Class] += u.End - u.Start
}

// stored returns the content of the segment's part of the file, and the bytes that the file occupies.
func (d *domain) stored() (text []byte, takes int64) {
	d.Helper()
	text = make([]byte, segmentBytes)
	if _, err := d.file.ReadAt(text, segmentAt); err != nil {
		d.Fatal(err)
	}
	st, err := d.file.Stat()
	if err != nil {
		d.Fatal(err)
	}
	return text, st.Sys().(*syscall.Stat_t).Blocks * 512
}

// peers starts a test of device segments. It skips the test if the device has no PeerSharing.
func (b *bench) peers() accel.PeerSharer {
	b.Helper()
	b.start(Options{})
	k := b.dev.Capabilities().PeerSharing
	if k == nil {
		b.Skip("the device passes no memory between processes")
	}
	return k
}

func (b *bench) attach(c accel.Context, p *process) uint64 {
	b.Helper()
	at, r := c.Capabilities().Peers.AttachSegment(p.segment())
	b.want(r, cuda.Success)
	return at
}

func (b *bench) detach(c accel.Context, at uint64) {
	b.Helper()
	gone := newAnswer()
	b.want(c.Capabilities().Peers.Detach(at, func() { gone <- cuda.Success }), cuda.Success)
	b.wait(gone)
}

func (b *bench) holds(what string, at uint64, want []byte) {
	b.Helper()
	if got := b.download(at, len(want)); !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		b.Errorf("%s: byte %d is %#x, want %#x", what, i, got[i], want[i])
	}
}

// sparse returns bytes that are mostly zeros.
func sparse() []byte {
	text := make([]byte, segmentBytes)
	copy(text[100:], pattern(5000))
	copy(text[3<<20-17:], pattern(9000))
	copy(text[segmentBytes-300:], pattern(300))
	return text
}

// testSegments checks that all processes that attach a segment find the same bytes, in any order of attaching and
// detaching, and that the bytes are in the file exactly while no process holds the segment.
func testSegments(t *testing.T, b *bench) {
	k := b.peers()
	d := newDomain(b)
	one, other := d.process(1), d.process(2)
	at := b.attach(b.ctx, one)
	b.holds("a new one", at, make([]byte, segmentBytes))
	text := sparse()
	b.upload(at, text)
	again := b.attach(b.ctx, one)
	if again < at+segmentBytes && at < again+segmentBytes {
		t.Fatalf("it is at %#x and %#x", at, again)
	}
	b.holds("another address", again, text)
	_, r := b.ctx.Alloc(4096)
	b.want(r, cuda.Success)
	for _, bad := range []accel.Work{
		accel.Fill{Address: at + segmentBytes - 4, Width: 8, Height: 1, ElementSize: 1}, accel.Fill{Address: at - 4, Width: 8, Height: 1, ElementSize: 1},
	} {
		b.want(b.ctx.Submit(b.ctx.DefaultStream(), bad, nil), cuda.ErrorInvalidValue)
	}
	b.want(b.ctx.Free(at, nil), cuda.ErrorInvalidValue)
	b.detach(b.ctx, at)
	b.want(b.ctx.Capabilities().Peers.Detach(at, func() {}), cuda.ErrorInvalidValue)
	if _, takes := d.stored(); takes != 0 || len(d.holders) != 1 {
		t.Errorf("while it is attached %d bytes of it are in the file, and %d hold it", takes, len(d.holders))
	}
	b.do(accel.Fill{Address: again + 70_000, Value: 9, ElementSize: 1, Width: 5, Height: 1})
	copy(text[70_000:], []byte{9, 9, 9, 9, 9})
	b.detach(b.ctx, again)
	got, takes := d.stored()
	if !bytes.Equal(got, text) || !one.Stored() || len(d.holders) != 0 {
		t.Errorf("the file hasn't got what nobody holds: %d hold it", len(d.holders))
	}
	if takes == 0 || takes > 1<<20 {
		t.Errorf("the file takes %d bytes for some thousand that are no zeros", takes)
	}
	if d.used[accel.CopyOut] == 0 {
		t.Error("copying to the file is charged to nobody")
	}

	c := b.context() // destroyed below while a segment is attached
	at = b.attach(c, one)
	b.holds("attached again", at, text)
	if _, takes := d.stored(); takes != 0 {
		t.Errorf("the file keeps %d bytes of what is on the device", takes)
	}
	if d.used[accel.CopyIn] == 0 {
		t.Error("copying from the file is charged to nobody")
	}
	mine := b.attach(b.ctx, other) // from the first process
	b.holds("as another process has it", mine, text)
	b.upload(mine+4096, pattern(3000))
	copy(text[4096:], pattern(3000))
	b.holds("what the other one wrote", at, text)
	gone := newAnswer()
	c.Destroy(func() { gone <- cuda.Success })
	b.wait(gone)
	if _, takes := d.stored(); takes != 0 || one.Stored() {
		t.Errorf("%d bytes were stored of what another one holds", takes)
	}
	b.holds("after who made it has gone", mine, text)
	c = b.context()
	at = b.attach(c, one)
	b.holds("attached of who had it of oneself", at, text)
	b.detach(b.ctx, mine)
	gone = newAnswer()
	c.Destroy(func() { gone <- cuda.Success })
	b.wait(gone)
	if got, _ := d.stored(); !bytes.Equal(got, text) {
		t.Error("what a context had that was destroyed isn't stored")
	}

	at = b.attach(b.ctx, one) // while work is in flight that doesn't end
	b.upload(at, pattern(300))
	copy(text, pattern(300))
	reached := make(chan func(), 1)
	b.submit(b.stream(1), accel.HostFunc{Due: func(_ cuda.Result, f func()) { reached <- f }})
	finished := <-reached
	released := newAnswer()
	b.want(b.ctx.Capabilities().Peers.Detach(at, func() { released <- cuda.Success }), cuda.Success)
	k.StoreSegments()
	if got, _ := d.stored(); !bytes.Equal(got, text) || len(d.holders) != 0 {
		t.Error("a process that ends doesn't store what it holds")
	}
	finished()
	b.wait(released)
}

// testLeavingSegments checks that a process that ends while it leaves segments loses no bytes, at any point of leaving.
func testLeavingSegments(t *testing.T, b *bench) {
	k := b.peers()
	c := b.context()
	all := make([]*domain, 3)
	var once sync.Once
	begun, keeping := make(chan struct{}), make(chan struct{})
	for i := range all {
		all[i] = newDomain(b)
		all[i].leaves = func() {
			once.Do(func() {
				close(begun)
				<-keeping
				time.Sleep(20 * time.Millisecond) // so that Keep waits for its turn
			})
		}
		p := all[i].process(uint32(i))
		b.upload(b.attach(c, p), pattern(3000))
	}
	gone := newAnswer()
	c.Destroy(func() { gone <- cuda.Success })
	<-begun
	close(keeping)
	k.StoreSegments()
	for i, d := range all {
		if got, _ := d.stored(); !bytes.Equal(got[:3000], pattern(3000)) {
			t.Errorf("of %d the bytes of number %d are lost", len(all), i)
		}
	}
	b.wait(gone)
}

// testHastySegments checks that a segment has its bytes when it is attached again at once, whether it is still held or was
// stored meanwhile.
func testHastySegments(t *testing.T, b *bench) {
	b.peers()
	one := newDomain(b).process(1)
	all := []accel.Context{b.ctx, b.context()}
	gone := newAnswer()
	const rounds = 40
	for i := range rounds {
		c := all[i%2]
		at := b.attach(c, one)
		want := byte(i)
		if got := b.download(at+1000, 1); got[0] != want {
			t.Fatalf("in round %d it has %d, want %d", i, got[0], want)
		}
		b.upload(at+1000, []byte{want + 1})
		b.want(c.Capabilities().Peers.Detach(at, func() { gone <- cuda.Success }), cuda.Success)
		if i%5 == 0 {
			b.wait(gone)
			gone <- cuda.Success
		}
	}
	for range rounds {
		b.wait(gone)
	}
	if got, _ := one.stored(); got[1000] != rounds {
		t.Errorf("in the end it has %d, want %d", got[1000], rounds)
	}
}

// testLostSegments checks that attaching a segment after the loss of its bytes yields zeros or an error, and never
// another process's bytes.
func testLostSegments(t *testing.T, b *bench) {
	b.peers()
	d := newDomain(b)
	one, other := d.process(1), d.process(2)
	none := make([]byte, segmentBytes)
	if _, err := d.file.WriteAt(pattern(9000), segmentAt+500); err != nil {
		t.Fatal(err)
	}
	d.lost = true // their holder was killed while it stored them
	at := b.attach(b.ctx, one)
	b.holds("after a part was stored", at, none)
	b.upload(at, pattern(9000))
	d.forgotten = true
	b.detach(b.ctx, at)
	if _, takes := d.stored(); takes != 0 || len(d.holders) != 0 {
		t.Errorf("%d bytes are stored of what nobody wants", takes)
	}
	d.forgotten = false

	d.holders[other] = 1 << 31 // no process has this ID: the holder was killed
	at = b.attach(b.ctx, one)
	b.holds("after who held it was killed", at, none)
	b.upload(at, pattern(9000))
	b.detach(b.ctx, at)
	delete(d.holders, other)
	if got, _ := d.stored(); !bytes.Equal(got[:9000], pattern(9000)) {
		t.Error("what somebody else held who was killed isn't stored by who holds it")
	}

	d.refuse = cuda.ErrorTimeout
	_, r := b.ctx.Capabilities().Peers.AttachSegment(one.segment())
	b.want(r, cuda.ErrorTimeout)
	d.refuse = cuda.Success
	for _, bytes := range []uint64{0, 1 << 60, 1<<64 - 1} {
		c := one.segment()
		c.Bytes = bytes
		_, r := b.ctx.Capabilities().Peers.AttachSegment(c)
		b.want(r, cuda.ErrorInvalidValue)
	}
	small := other.segment()
	at = b.attach(b.ctx, one)
	small.Bytes -= 4096 // differs from the size that the segment was attached with
	_, r = b.ctx.Capabilities().Peers.AttachSegment(small)
	b.want(r, cuda.ErrorInvalidValue)
	b.holds("after all that", at, append(pattern(9000), make([]byte, 100)...))
	b.detach(b.ctx, at)
	if d.claimed != nil || len(d.holders) != 0 {
		t.Errorf("in the end %d hold it", len(d.holders))
	}
}
