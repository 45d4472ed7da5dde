package cuda_test

import (
	"bytes"
	"encoding/hex"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"pegasus/cuda"
	"pegasus/test/seeds"
)

// record is the common interface of all operations' arguments and results.
type record interface {
	Decode([]byte) bool
	Append([]byte) []byte
}

type goldenRecord struct {
	name  string
	fixed int  // bytes of the fixed part
	tail  bool // followed by bytes
	fresh func() record
	value record
}

// golden reads the bytes of a record from testdata.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "wire", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "#") || len(fields) != 3 {
			continue
		}
		b, err := hex.DecodeString(fields[2])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, b...)
	}
	return all
}

func TestGolden(t *testing.T) {
	for _, g := range goldenRecords {
		want := golden(t, g.name)
		prefix := []byte("before")
		if got := g.value.Append(prefix)[len(prefix):]; !bytes.Equal(got, want) {
			t.Errorf("%s encodes to\n%x, want\n%x", g.name, got, want)
		}
		got := g.fresh()
		if !got.Decode(want) || !reflect.DeepEqual(got, g.value) {
			t.Errorf("%s decodes to\n%+v, want\n%+v", g.name, got, g.value)
		}
	}
}

// The fixed part has one length; the part after it may have any.
func TestLengths(t *testing.T) {
	for _, g := range goldenRecords {
		b := make([]byte, g.fixed+1)
		for n := range g.fixed {
			if g.fresh().Decode(b[:n:n]) {
				t.Errorf("%s: %d of %d bytes were accepted", g.name, n, g.fixed)
			}
		}
		if !g.fresh().Decode(b[:g.fixed]) {
			t.Errorf("%s: %d bytes were refused", g.name, g.fixed)
		}
		if g.fresh().Decode(b) != g.tail {
			t.Errorf("%s: one more byte: accepted %t, want %t", g.name, !g.tail, g.tail)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewSource(int64(seeds.Fixed(t))))
	for _, g := range goldenRecords {
		for range 200 {
			v, ok := quick.Value(reflect.TypeOf(g.value).Elem(), rng)
			if !ok {
				t.Fatalf("%s: no random value", g.name)
			}
			in := reflect.New(v.Type())
			in.Elem().Set(v)
			b := in.Interface().(record).Append(nil)
			out := g.fresh()
			if !out.Decode(b) {
				t.Fatalf("%s: %x was refused", g.name, b)
			}
			if again := out.Append(nil); !bytes.Equal(b, again) {
				t.Fatalf("%s: %x became %x", g.name, b, again)
			}
		}
	}
}

// A call allocates nothing.
func TestDispatchAllocatesNothing(t *testing.T) {
	args := cuda.LaunchArgs{Function: 1 << 32, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: make([]byte, 64)}
	payload := args.Append(nil)
	reply := make([]byte, 0, 240)
	n := testing.AllocsPerRun(100, func() {
		var got cuda.LaunchArgs
		if !got.Decode(payload) || len(got.Params) != 64 {
			t.Error("refused")
		}
		if _, _, ok := cuda.Dispatch(idle{}, cuda.Call{Op: cuda.OpLaunch}, payload, reply); !ok {
			t.Error("not dispatched")
		}
		if out, _, ok := cuda.Dispatch(idle{}, cuda.Call{Op: cuda.OpMemInfo, Reply: true}, nil, reply); !ok || len(out) != 16 {
			t.Error("not dispatched")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// idle does nothing to the calls that the test makes.
type idle struct{ cuda.Handler }

func (idle) Launch(cuda.Call, cuda.LaunchArgs) cuda.Result { return cuda.Success }
func (idle) MemInfo(cuda.Call) (cuda.MemInfoResult, cuda.Result) {
	return cuda.MemInfoResult{Free: 1, Total: 2}, cuda.Success
}

func TestDispatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		call    cuda.Call
		payload []byte
		result  cuda.Result
		ok      bool
		reply   int
	}{
		{"no such operation", cuda.Call{Op: 0}, nil, 0, false, 0},
		{"operation of a later version", cuda.Call{Op: cuda.NumOps}, nil, 0, false, 0},
		{"largest number", cuda.Call{Op: 0xffff}, nil, 0, false, 0},
		{"no payload, as it should be", cuda.Call{Op: cuda.OpNop}, nil, 0, true, 0},
		{"payload where none belongs", cuda.Call{Op: cuda.OpNop}, []byte{0}, 0, false, 0},
		{"result", cuda.Call{Op: cuda.OpMemInfo, Reply: true}, nil, 0, true, 16},
		{"result with an error", cuda.Call{Op: cuda.OpMemInfo, Reply: true}, nil, cuda.ErrorOutOfMemory, true, 16},
		{"deferred", cuda.Call{Op: cuda.OpMemInfo, Reply: true}, nil, cuda.Deferred, true, 0},
		{"nobody waits for an answer that must be given", cuda.Call{Op: cuda.OpMemInfo}, nil, 0, false, 0},
		{"somebody waits for an answer that never comes", cuda.Call{Op: cuda.OpModuleUnload, Reply: true}, make([]byte, 8), 0, false, 0},
	} {
		h := &recorder{result: c.result}
		reply, result, ok := cuda.Dispatch(h, c.call, c.payload, nil)
		if ok != c.ok || result != c.result || len(reply) != c.reply {
			t.Errorf("%s: %t %v, %d bytes; want %t %v, %d bytes", c.name, ok, result, len(reply), c.ok, c.result, c.reply)
		}
		if !ok && h.call.Op != 0 {
			t.Errorf("%s: the handler was called", c.name)
		}
	}
}

func FuzzDispatch(f *testing.F) {
	for op := range uint16(cuda.NumOps) {
		f.Add(op, cuda.Op(op).Reply() != cuda.ReplyNever, make([]byte, 64))
	}
	for _, g := range goldenRecords {
		for op := range uint16(cuda.NumOps) {
			if strings.TrimSuffix(g.name, "Args") == cuda.Op(op).String() {
				f.Add(op, cuda.Op(op).Reply() != cuda.ReplyNever, g.value.Append(nil))
			}
		}
	}
	f.Fuzz(func(t *testing.T, op uint16, reply bool, payload []byte) {
		h := &recorder{}
		c := cuda.Call{Op: cuda.Op(op), Reply: reply, Context: 1, Stream: 2}
		_, _, ok := cuda.Dispatch(h, c, payload, nil)
		if !ok {
			return
		}
		if h.call != c {
			t.Fatalf("%v arrived as %v", c, h.call)
		}
		if h.args == nil {
			return
		}
		again := h.args.Append(nil)
		if len(again) != len(payload) || !h.args.Decode(again) || !bytes.Equal(h.args.Append(nil), again) {
			t.Fatalf("%v: %x was read as %x", c.Op, payload, again)
		}
	})
}

func TestResultNames(t *testing.T) {
	for r, want := range map[cuda.Result]string{
		cuda.Success: "CUDA_SUCCESS", cuda.ErrorNotReady: "CUDA_ERROR_NOT_READY", cuda.ErrorUnknown: "CUDA_ERROR_UNKNOWN", 12345: "CUresult(12345)",
	} {
		if r.Name() != want || r.Error() != want {
			t.Errorf("%d: %q, want %q", r, r.Name(), want)
		}
	}
	if cuda.ErrorOutOfMemory.Text() != "out of memory" || cuda.Result(-7).Known() || !cuda.ErrorLaunchFailed.Sticky() || cuda.ErrorOutOfMemory.Sticky() {
		t.Error("text, known or sticky is wrong")
	}
}

// Results are decoded by guests, which do not trust their host blindly either.
func FuzzRecords(f *testing.F) {
	for i, g := range goldenRecords {
		f.Add(uint8(i), g.value.Append(nil))
	}
	f.Fuzz(func(t *testing.T, i uint8, b []byte) {
		g := goldenRecords[int(i)%len(goldenRecords)]
		r, again := g.fresh(), g.fresh()
		if !r.Decode(b) {
			return
		}
		first := r.Append(nil)
		if len(first) != len(b) || !again.Decode(first) || !bytes.Equal(again.Append(nil), first) {
			t.Fatalf("%s: %x was read as %x", g.name, b, first)
		}
	})
}
