package test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// improper makes hostile packets that are well formed: every operation, with arguments at the limits of their ranges.
type improper struct {
	rng        *rand.Rand
	arena      uint64
	replySlots uint32
	addresses  []uint64 // of device memory that exists, or existed
	avoid      map[cuda.Op]bool
}

func newImproper(rng *rand.Rand, arena uint64, replySlots uint32) *improper {
	return &improper{rng: rng, arena: arena, replySlots: replySlots, avoid: map[cuda.Op]bool{cuda.OpGoodbye: true}}
}

type arguments interface{ Append(b []byte) []byte }

var argumentsOf = map[cuda.Op]func() arguments{
	cuda.OpDeviceInfo:       func() arguments { return new(cuda.DeviceInfoArgs) },
	cuda.OpContextCreate:    func() arguments { return new(cuda.ContextCreateArgs) },
	cuda.OpContextSetLimit:  func() arguments { return new(cuda.ContextSetLimitArgs) },
	cuda.OpModuleLoad:       func() arguments { return new(cuda.ModuleLoadArgs) },
	cuda.OpModuleUnload:     func() arguments { return new(cuda.ModuleUnloadArgs) },
	cuda.OpMemAlloc:         func() arguments { return new(cuda.MemAllocArgs) },
	cuda.OpMemFree:          func() arguments { return new(cuda.MemFreeArgs) },
	cuda.OpCopy:             func() arguments { return new(cuda.CopyArgs) },
	cuda.OpCopyLinear:       func() arguments { return new(cuda.CopyLinearArgs) },
	cuda.OpFill:             func() arguments { return new(cuda.FillArgs) },
	cuda.OpLaunch:           func() arguments { return new(cuda.LaunchArgs) },
	cuda.OpStreamCreate:     func() arguments { return new(cuda.StreamCreateArgs) },
	cuda.OpStreamDestroy:    func() arguments { return new(cuda.StreamDestroyArgs) },
	cuda.OpStreamWaitEvent:  func() arguments { return new(cuda.StreamWaitEventArgs) },
	cuda.OpEventCreate:      func() arguments { return new(cuda.EventCreateArgs) },
	cuda.OpEventDestroy:     func() arguments { return new(cuda.EventDestroyArgs) },
	cuda.OpEventRecord:      func() arguments { return new(cuda.EventRecordArgs) },
	cuda.OpEventSynchronize: func() arguments { return new(cuda.EventSynchronizeArgs) },
	cuda.OpEventElapsed:     func() arguments { return new(cuda.EventElapsedArgs) },
	cuda.OpHostCallback:     func() arguments { return new(cuda.HostCallbackArgs) },
	cuda.OpCallbackWait:     func() arguments { return new(cuda.CallbackWaitArgs) },
	cuda.OpArrayCreate:      func() arguments { return new(cuda.ArrayCreateArgs) },
	cuda.OpArrayDestroy:     func() arguments { return new(cuda.ArrayDestroyArgs) },
	cuda.OpSurfaceCreate:    func() arguments { return new(cuda.SurfaceCreateArgs) },
	cuda.OpReferenceBind:    func() arguments { return new(cuda.ReferenceBindArgs) },
	cuda.OpTextRead:         func() arguments { return new(cuda.TextReadArgs) },
	cuda.OpProfile:          func() arguments { return new(cuda.ProfileArgs) },
	cuda.OpCheck:            func() arguments { return new(cuda.CheckArgs) },
	cuda.OpStreamMark:       func() arguments { return new(cuda.StreamMarkArgs) },
	cuda.OpTextureCreate:    func() arguments { return new(cuda.TextureCreateArgs) },
	cuda.OpTextureDestroy:   func() arguments { return new(cuda.TextureDestroyArgs) },
}

// packet returns a packet.
func (x *improper) packet() (callbuf.Header, []byte) {
	op := cuda.Op(x.rng.IntN(int(cuda.NumOps) + 1))
	for x.avoid[op] || op == cuda.OpContextDestroy && x.rng.IntN(50) != 0 { // a destroyed object can't be abused
		op = cuda.Op(x.rng.IntN(int(cuda.NumOps) + 1))
	}
	h := callbuf.Header{
		Op: uint16(op), ReplySlot: uint16(x.rng.IntN(int(x.replySlots))), ReplyTag: 1 + uint32(x.rng.IntN(5)),
		Context: 1 + uint32(x.rng.IntN(3)), Stream: x.stream(),
	}
	if x.rng.IntN(30) == 0 {
		h.Context = uint32(x.number())
	}
	switch {
	case op.Reply() == cuda.ReplyAlways, op.Reply() == cuda.ReplyEither && x.rng.IntN(2) == 0, x.rng.IntN(50) == 0:
		h.Flags = callbuf.FlagReply
	}
	var payload []byte
	if make := argumentsOf[op]; make != nil {
		a := make()
		x.fill(reflect.ValueOf(a).Elem())
		payload = a.Append(nil)
	}
	if x.rng.IntN(100) == 0 { // some have a wrong length
		payload = payload[:x.rng.IntN(len(payload)+1)]
	}
	return h, payload[:min(len(payload), callbuf.MaxPayload)]
}

// fill gives every field a plausible value, or another one.
func (x *improper) fill(v reflect.Value) {
	t := v.Type()
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Kind() {
		case reflect.Array:
			for k := range f.Len() {
				x.set(t.Field(i).Name, f.Index(k))
			}
		case reflect.Slice:
			b := make([]byte, x.rng.IntN(300))
			if x.rng.IntN(10) == 0 {
				b = make([]byte, x.rng.IntN(7000))
			}
			if x.rng.IntN(3) == 0 {
				b = nil
			}
			f.SetBytes(b)
		default:
			x.set(t.Field(i).Name, f)
		}
	}
}

func (x *improper) set(name string, f reflect.Value) {
	n := x.field(name)
	switch {
	case f.CanUint():
		f.SetUint(n & (1<<f.Type().Bits() - 1))
	case f.CanInt():
		f.SetInt(int64(n))
	case f.CanFloat():
		f.SetFloat(float64(n))
	}
}

// field returns a plausible value of the field with this name, seven times out of eight.
func (x *improper) field(name string) uint64 {
	if x.rng.IntN(8) == 0 {
		return x.number()
	}
	few := uint64(x.rng.IntN(6))
	switch name {
	case "Stream":
		return x.stream()
	case "Event", "Start", "End", "Array", "Texture", "Module", "Callback", "Done":
		return 1 + few
	case "Function":
		return (1+few)<<32 | few
	case "DstKind", "SrcKind":
		return 1 + few
	case "ElementSize":
		return 1 << (few % 3)
	case "Device", "Flags", "Priority", "Reserved", "Resource", "AddressMode", "FilterMode":
		return few % 4
	case "Address", "Dst", "Src":
		if len(x.addresses) > 0 && x.rng.IntN(3) != 0 {
			return x.addresses[x.rng.IntN(len(x.addresses))] + uint64(x.rng.IntN(3))*x.edge()
		}
		return x.edge()
	case "Format":
		return []uint64{1, 2, 3, 8, 9, 10, 16, 32}[x.rng.IntN(8)]
	case "Channels":
		return 1 << (few % 3)
	case "Release":
		return uint64(x.rng.IntN(5000))
	}
	return x.edge()
}

func (x *improper) stream() uint64 {
	switch x.rng.IntN(10) {
	case 0:
		return x.number()
	case 1:
		return 1<<63 + uint64(x.rng.IntN(3))
	case 2, 3:
		return uint64(x.rng.IntN(3))
	}
	return 16 + uint64(x.rng.IntN(4))
}

// edge returns a number near the beginning or the end of a range.
func (x *improper) edge() uint64 {
	ends := [...]uint64{0, 1, 64, 512, 4096, 64 << 10, 1 << 20, x.arena, x.arena / 2, 1 << 30, 1 << 32, 1 << 63}
	return ends[x.rng.IntN(len(ends))] + uint64(x.rng.IntN(5)) - 2
}

func (x *improper) number() uint64 { return oddNumber(x.rng) }

var errImpatient = errors.New("the ring stays full")

// patience returns a check for a wait for the worker, called every 100 ms. It fails when the worker has been asleep for
// d, or computed for d, without consuming packets of the ring. Time in which a busy host has no processor for the
// worker does not count.
func (r *raw) patience(d time.Duration) func() error {
	var head uint64
	var slept, used time.Duration
	last := time.Now()
	return func() error {
		now, awake, cpu := time.Now(), awake(r.pid), processorTime(r.pid)
		if at := r.word(offHead).Load(); at != head || used == 0 {
			head, slept, used = at, 0, cpu
		} else if !awake {
			slept += now.Sub(last)
		}
		last = now
		if r.dropped() {
			return errors.New("the worker has closed the connection")
		}
		if slept > d || cpu-used > d {
			return fmt.Errorf("%w: without consuming packets, the worker has slept for %v and computed for %v", errImpatient, slept, cpu-used)
		}
		return nil
	}
}

// gone waits until the worker has ended, which must happen before it has been asleep for d, or computed for d: as with
// patience, a busy host's time does not count.
func (r *raw) gone(d time.Duration) error {
	var slept time.Duration
	first, last := processorTime(r.pid), time.Now()
	for running(r.pid) {
		time.Sleep(10 * time.Millisecond)
		now, used := time.Now(), processorTime(r.pid)-first
		if !awake(r.pid) {
			slept += now.Sub(last)
		}
		last = now
		if slept > d || used > d {
			return fmt.Errorf("worker %d is still there, having slept for %v and computed for %v", r.pid, slept, used)
		}
	}
	return nil
}

// awake reports whether a thread of the process has a processor or waits for one.
func awake(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(tasks, func(path string) bool {
		f := statOf(path)
		return len(f) > 0 && (f[0] == "R" || f[0] == "D")
	})
}

// processorTime returns a process's CPU time so far.
func processorTime(pid int) time.Duration {
	f := statOf(fmt.Sprintf("/proc/%d/stat", pid))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// statOf returns the fields after the name in a stat file of the kernel.
func statOf(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

// Hostile packets that are well formed return errors; the worker continues to serve, and the next process finds the
// device unaffected.
func TestHostileCalls(t *testing.T) { hostileCalls(t, 2*time.Second) }

func hostileCalls(t *testing.T, d time.Duration) {
	rng := seeded(t)
	h := startHost(t, hostileDomains)
	good, bad := h.decent("good"), h.decent("bad")
	before := h.quiet()
	for end := time.Now().Add(d); time.Now().Before(end); {
		r, err := enter(h.socket("bad"))
		if err != nil {
			t.Fatal(err)
		}
		x := newImproper(rng, r.layout.ArenaBytes, r.layout.ReplySlots-1)
		if err := x.prepare(r); err != nil {
			t.Fatal(err)
		}
		sent := 0
		for burst := time.Now().Add(d / 8); time.Now().Before(burst); sent++ {
			header, payload := x.packet()
			// Some launches compute for seconds, on all cores of the accelerator.
			if err := r.guest.Send(header, payload, r.patience(30*time.Second)); err != nil {
				t.Fatalf("after %d packets: %v", sent, err)
			}
		}
		if err := r.ping(); err != nil {
			t.Errorf("after %d hostile packets: %v", sent, err)
		}
		t.Logf("%d packets", sent)
		r.leave()
		if err := r.gone(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(good.round(rng), bad.round(rng)); err != nil {
			t.Error(err)
		}
	}
	eventually(t, soon, "its memory is free", func() bool { return h.domains()["bad"].Memory == 0 })
	h.sound()
	h.settled(before)
}

// prepare creates some of the objects that the packets will name.
func (x *improper) prepare(r *raw) error {
	for id := range uint32(2) {
		if _, err := r.call(cuda.OpContextCreate, id+1, &cuda.ContextCreateArgs{}); err != nil {
			return err
		}
		for _, n := range []uint64{512, 64 << 10, 3 << 20} {
			out, err := r.call(cuda.OpMemAlloc, id+1, &cuda.MemAllocArgs{Size: n})
			if err != nil {
				return err
			}
			var a cuda.MemAllocResult
			if !a.Decode(out) {
				return fmt.Errorf("answer of %d bytes", len(out))
			}
			x.addresses = append(x.addresses, a.Address, a.Address+n)
		}
	}
	image := copy(r.guest.Arena()[4096:], kernels)
	_, err := r.call(cuda.OpModuleLoad, 1, &cuda.ModuleLoadArgs{Module: 1, ImageOffset: 4096, ImageLength: uint64(image),
		LayoutOffset: 1 << 20, LayoutCapacity: 1 << 20, LogOffset: 2 << 20, LogCapacity: 4096})
	if errors.Is(err, cuda.ErrorJITCompilerNotFound) {
		return nil
	}
	return err
}

// call makes a correct call.
func (r *raw) call(op cuda.Op, context uint32, a arguments) ([]byte, error) {
	var payload []byte
	if a != nil {
		payload = a.Append(nil)
	}
	since := time.Now()
	result, out, err := r.guest.Call(callbuf.Header{Op: uint16(op), Context: context}, payload, nil, func() error {
		if r.dropped() {
			return fmt.Errorf("%v: the worker hung up", op)
		}
		if time.Since(since) > soon {
			return fmt.Errorf("%v: no answer", op)
		}
		return nil
	})
	if err == nil && result != 0 {
		err = fmt.Errorf("%v: %w", op, cuda.Result(result))
	}
	return out, err
}

func (r *raw) ping() error {
	_, err := r.call(cuda.OpNop, 0, nil)
	return err
}
