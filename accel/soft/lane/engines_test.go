package lane

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel/ptx"
	"pegasus/accel/ptx/cases"
	"pegasus/accel/soft/lane/exec"
	"pegasus/accel/soft/lane/internal/lanetest"
)

// outcome is the result of a random program: the memory that it leaves, and its fault.
type outcome struct {
	memory []byte
	fault  int32
	late   bool // it was ended for its time
}

// runOn executes a kernel "k" with an engine, in one block on one core: the order of all accesses is defined, also that
// of races.
func runOn(t *testing.T, src []byte, compiler bool, threads int) outcome {
	t.Helper()
	defer exec.Compiler.Store(exec.Compiler.Load())
	exec.Compiler.Store(compiler)
	m, err := ptx.Parse(src)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	d := newDevice(t)
	out := guarded(t)
	d.bufs = append(d.bufs, out)
	for i := range out.mem {
		out.mem[i] = byte(i * i >> 3)
	}
	im, err := Load(m, d.alloc)
	if err != nil {
		t.Fatal(err)
	}
	l := d.launch(d.kernel(im, "k"), x(1), x(threads), out)
	l.Cancel = new(atomic.Bool)
	stop := time.AfterFunc(50*time.Millisecond, func() { l.Cancel.Store(true) })
	defer stop.Stop()
	f := d.kernel(im, "k").Run(l)
	o := outcome{memory: out.mem}
	if f != nil {
		o.fault, o.late = f.Result, f.Result == ptx.ErrLaunchTimeout
	}
	return o
}

const outcomeBytes = 1 << 16

// guarded returns memory that ends, and begins, at a page that can't be accessed.
func guarded(t *testing.T) buffer {
	t.Helper()
	const page = 4096
	mem, err := unix.Mmap(-1, 0, outcomeBytes+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for _, end := range [][]byte{mem[:page], mem[page+outcomeBytes:]} {
		if err := unix.Mprotect(end, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return buffer{0x7e00_0000_0000, mem[page:][:outcomeBytes:outcomeBytes]}
}

// withResults makes a random program store its registers at its end.
func withResults(src []byte) []byte {
	at := bytes.LastIndex(src, []byte("ret; }"))
	var b strings.Builder
	b.Write(src[:at])
	b.WriteString("mov.u32 %z, %tid.x; ld.param.u64 %o, [out]; mad.wide.u32 %o, %z, 96, %o;\n")
	off := 8192
	for i := range 4 {
		f := func(format string, size int) {
			b.WriteString(strings.NewReplacer("#", strconv.Itoa(i), "@", strconv.Itoa(off)).Replace(format))
			off += size
		}
		f("st.global.u32 [%o+@], %r#;\n", 8)
		f("st.global.u64 [%o+@], %l#;\n", 8)
		f("cvt.u32.u16 %z, %h#; st.global.u32 [%o+@], %z;\n", 4)
		f("selp.u32 %z, 1, 0, %p#; st.global.u32 [%o+@], %z;\n", 4)
	}
	b.WriteString("ret; }\n")
	return []byte(strings.Replace(b.String(), ".reg .pred %p<4>; .reg .b16", ".reg .b32 %z; .reg .b64 %o; .reg .pred %p<4>; .reg .b16", 1))
}

// FuzzEngines compares the compiler with the interpreter: random programs of all forms, with branches, barriers, races
// and wrong addresses, leave the same memory and end with the same fault.
func FuzzEngines(f *testing.F) {
	needCompiler(f)
	_ = UseEngine(os.Getenv(EngineVariable))
	forms := readForms(f)
	var usual []cases.Form // those of which runs are made
	for _, form := range forms {
		name, _, _ := strings.Cut(form.Instruction, ".")
		if strings.Contains(" add sub mul mad fma mov setp selp shl shr and or xor not neg min max cvt sqrt rcp rsqrt ex2 lg2 div abs ", " "+name+" ") {
			usual = append(usual, form)
		}
	}
	r := lanetest.Random(11)
	for range 60 {
		b := make([]byte, 40+r.IntN(400))
		for i := range b {
			if b[i] = byte(r.Uint32()); r.IntN(3) > 0 {
				b[i] |= 0x80
			}
		}
		f.Add(b, uint8(r.Uint32()))
	}
	f.Fuzz(func(t *testing.T, data []byte, shape uint8) {
		if len(data) == 0 {
			return
		}
		list := forms
		if shape&1 != 0 {
			list = usual
		}
		threads := []int{1, 16, 33, 64, 70, 128, 256, 300}[shape>>1&7]
		src := withResults(randomProgram(data, list))
		src = bytes.ReplaceAll(src, []byte(", fn;\nL"), []byte(", 77;\nL")) // each image has other addresses of functions
		want := runOn(t, src, false, threads)
		got := runOn(t, src, true, threads)
		if want.late || got.late {
			return
		}
		if got.fault != want.fault {
			t.Fatalf("%d threads: fault %d with the compiler, %d with the interpreter\n%s", threads, got.fault, want.fault, src)
		}
		for i := range got.memory {
			if got.memory[i] != want.memory[i] {
				t.Fatalf("%d threads: memory at %d: %d with the compiler, %d with the interpreter\n%s", threads, i, got.memory[i], want.memory[i], src)
			}
		}
	})
}
