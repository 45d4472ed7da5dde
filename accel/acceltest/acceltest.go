// Package acceltest tests an accelerator for the behaviour that package accel specifies. Parts about a group of
// capabilities that the accelerator does not have are skipped.
//
// Callers: the accelerators' own tests, which call Run, and RunSwapping for devices that share a memory.
package acceltest

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// Options are the options of a device that a test opens.
type Options struct {
	Shared        []byte // host memory that is shared with the guest, outside of Go's heap
	Quota         func(delta int64) bool
	KernelTimeout time.Duration // 0: none
	OnTimeout     func()
}

// Opener opens a device, and closes it when the test ends. The device has 64 MiB of memory at least.
type Opener func(t testing.TB, o Options) accel.Device

// Traits are the permitted differences between accelerators.
type Traits struct {
	Cancels bool // a running kernel can be cancelled
	Exact   bool // work that ended successfully just before a fault reports success, and not the fault
	Whole   bool // memory can only be mapped as a whole
	Fatal   bool // a kernel's fault affects all present and future contexts of its process: each test has its own process

	CopiesOnly bool // the device has no kernels, arrays and textures; the parts that need them are skipped
}

// ofCopies are the parts that need no kernels, arrays or textures.
var ofCopies = []string{"Capabilities", "Flags", "Memory", "Quota", "Copies", "Boxes", "Fills", "HostileWork", "LegacyStream", "AtRest", "Times", "HostFunctions", "DestroyHeld"}

// Run tests an accelerator. Shared is host memory for the tests to use, 1 MiB at least.
func Run(t *testing.T, open Opener, shared []byte, traits Traits) {
	for _, part := range []struct {
		name string
		test func(t *testing.T, b *bench)
	}{
		{"Capabilities", testCapabilities}, {"Flags", testFlags}, {"Memory", testMemory}, {"Quota", testQuota}, {"Copies", testCopies}, {"Boxes", testBoxes}, {"SharedMemory", testSharedMemory},
		{"Arrays", testArrays}, {"Fills", testFills}, {"HostileWork", testHostileWork}, {"Strangers", testStrangers},
		{"Modules", testModules}, {"ModuleQuota", testModuleQuota}, {"Inspect", testInspect}, {"BadModules", testBadModules}, {"Linked", testLinked}, {"Launches", testLaunches}, {"HostileLaunches", testHostileLaunches},
		{"Order", testOrder}, {"LegacyStream", testLegacyStream}, {"Events", testEvents}, {"ToldMayAsk", testToldMayAsk}, {"AtRest", testAtRest}, {"Times", testTimes},
		{"Graphs", testGraphs}, {"GraphsInOrder", testGraphsInOrder}, {"GraphsRefused", testGraphsRefused}, {"WaitForEvents", testWaitForEvents}, {"HostFunctions", testHostFunctions}, {"Usage", testUsage}, {"Overlap", testOverlap}, {"Predict", testPredict},
		{"StickyErrors", testStickyErrors}, {"Limits", testLimits}, {"FreeWaits", testFreeWaits}, {"DestroyInFlight", testDestroyInFlight}, {"DestroyHeld", testDestroyHeld},
		{"Mapping", testMapping}, {"HostileMapping", testHostileMapping}, {"MappingQuota", testMappingQuota}, {"Values", testValues},
		{"Segments", testSegments}, {"LeavingSegments", testLeavingSegments}, {"HastySegments", testHastySegments}, {"LostSegments", testLostSegments},
		{"Timeout", testTimeout}, {"CloseInFlight", testCloseInFlight},
	} {
		t.Run(part.name, func(t *testing.T) {
			if traits.CopiesOnly && !slices.Contains(ofCopies, part.name) {
				t.Skip("the device executes no kernels")
			}
			if traits.Fatal && os.Getenv(apart) == "" {
				t.Parallel()
				runApart(t)
				return
			}
			clear(shared)
			part.test(t, &bench{T: t, open: open, shared: shared, traits: traits})
		})
	}
}

// apart is an environment variable that is set in a process for a single test.
const apart = "PEGASUS_TEST_APART"

// runApart runs the test again, in a process of its own.
func runApart(t *testing.T) {
	args := []string{"-test.v", "-test.run", "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), apart+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP: "+t.Name())):
		t.Skipf("%s", out)
	}
}

// bench is a test with the device and the context that it tests.
type bench struct {
	*testing.T
	open   Opener
	shared []byte
	traits Traits
	dev    accel.Device
	ctx    accel.Context
}

// start opens a device and a context on it.
func (b *bench) start(o Options) {
	b.Helper()
	o.Shared = b.shared
	b.dev = b.open(b, o)
	b.ctx = b.context()
}

func (b *bench) context() accel.Context {
	b.Helper()
	c, r := b.dev.NewContext(0)
	b.want(r, cuda.Success)
	return c
}

func (b *bench) want(got, want cuda.Result) {
	b.Helper()
	if got != want {
		b.Fatalf("%s (%d), want %s", got.Name(), got, want.Name())
	}
}

// patience bounds every wait.
const patience = 60 * time.Second

// answer collects results that come from any goroutine.
type answer chan cuda.Result

func newAnswer() answer { return make(answer, 1024) }

func (a answer) result(r cuda.Result)              { a <- r }
func (a answer) done(r cuda.Result, _ accel.Usage) { a <- r }

func (b *bench) wait(a answer) cuda.Result {
	b.Helper()
	select {
	case r := <-a:
		return r
	case <-time.After(patience):
		b.Fatalf("nobody called back for %v", patience)
		return 0
	}
}

func (b *bench) submit(s accel.Stream, w accel.Work) {
	b.Helper()
	b.want(b.ctx.Submit(s, w, nil), cuda.Success)
}

// do submits work to the default stream and waits for it.
func (b *bench) do(w accel.Work) {
	b.Helper()
	a := newAnswer()
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), w, a.done), cuda.Success)
	b.want(b.wait(a), cuda.Success)
}

func (b *bench) sync() cuda.Result {
	b.Helper()
	a := newAnswer()
	b.ctx.Synchronize(a.result)
	return b.wait(a)
}

func (b *bench) alloc(n uint64) uint64 {
	b.Helper()
	at, r := b.ctx.Alloc(n)
	b.want(r, cuda.Success)
	return at
}

func (b *bench) stream(flags uint32) accel.Stream {
	b.Helper()
	s, r := b.ctx.NewStream(flags, 0)
	b.want(r, cuda.Success)
	return s
}

func (b *bench) event() accel.Event {
	b.Helper()
	e, r := b.ctx.NewEvent(0)
	b.want(r, cuda.Success)
	return e
}

// linear returns a copy of contiguous bytes.
func linear(dst, src accel.End, n int) accel.Copy {
	return accel.Copy{Dst: dst, Src: src, Width: uint64(n), Height: 1, Depth: 1}
}

func at(address uint64) accel.End { return accel.End{Address: address} }
func host(mem []byte) accel.End   { return accel.End{Host: mem} }

func (b *bench) upload(to uint64, data []byte) {
	b.Helper()
	b.do(linear(at(to), host(data), len(data)))
}

func (b *bench) download(from uint64, n int) []byte {
	b.Helper()
	out := make([]byte, n)
	b.do(linear(host(out), at(from), n))
	return out
}

// module loads PTX.
func (b *bench) module(text string) accel.Module {
	b.Helper()
	m, log, r := b.ctx.LoadModule([]byte(text))
	if r != cuda.Success {
		b.Fatalf("load a module: %v: %s", r, log)
	}
	return m
}

// launch returns a launch of a module's kernel with one block of one thread.
func launch(m accel.Module, name string, params []byte) accel.Launch {
	for i, f := range m.Layout().Functions {
		if f.Name == name {
			return accel.Launch{Module: m, Function: i, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: params}
		}
	}
	panic("no kernel " + name)
}

// spinner is a kernel that runs until letGo.
type spinner struct {
	b    *bench
	flag uint64
	m    accel.Module
	way  accel.Stream // carries the copy that ends it
}

func (b *bench) spinner() *spinner {
	b.Helper()
	return &spinner{b: b, flag: b.alloc(8), m: b.module(kernels), way: b.stream(1)}
}

// work returns the kernel's launch.
func (s *spinner) work() accel.Launch { return launch(s.m, "spin", words64(s.flag)) }

// letGo ends the kernel: it sets the flag that the kernel polls.
func (s *spinner) letGo() {
	s.b.Helper()
	s.b.want(s.b.ctx.Submit(s.way, linear(at(s.flag), host([]byte{1, 0, 0, 0}), 4), nil), cuda.Success)
}
