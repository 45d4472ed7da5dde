package acceltest

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pegasus/accel"
	"pegasus/accel/linked"
	"pegasus/cuda"
)

func testModules(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.module(kernels)
	l := m.Layout()
	find := func(name string) *cuda.FunctionLayout {
		i := slices.IndexFunc(l.Functions, func(f cuda.FunctionLayout) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no kernel %s in %+v", name, l.Functions)
		}
		return &l.Functions[i]
	}
	if len(l.Functions) != 7 {
		t.Errorf("%d kernels", len(l.Functions))
	}
	f := find("places")
	want := []cuda.ParamLayout{{Offset: 0, Size: 1}, {Offset: 8, Size: 8}, {Offset: 16, Size: 2}, {Offset: 32, Size: 20}, {Offset: 52, Size: 4}}
	if !slices.Equal(f.Params, want) || f.ParamBytes != 56 {
		t.Errorf("the parameters of places are %v, %d bytes, want %v", f.Params, f.ParamBytes, want)
	}
	// A driver reports the virtual architecture that .target names, not the .version of the text: CUB chooses its policies by it.
	if f.MaxThreads < 1 || f.Registers < 1 || f.PTXVersion != 50 || f.BinaryVersion < 10 {
		t.Errorf("attributes %+v", f)
	}
	if f := find("bump"); f.ParamBytes != 0 || len(f.Params) != 0 {
		t.Errorf("bump has parameters: %+v", f)
	}
	globals := map[string]cuda.GlobalLayout{}
	for _, g := range l.Globals {
		globals[g.Name] = g
	}
	counter, table := globals["counter"], globals["table"]
	if counter.Size != 8 || table.Size != 12 || counter.Address == 0 || table.Address == 0 {
		t.Fatalf("variables %+v", l.Globals)
	}
	if got := b.download(table.Address, 12); !bytes.Equal(got, []byte{1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("the table is % x", got)
	}
	b.do(launch(m, "bump", nil))
	b.upload(table.Address, []byte{30})
	b.do(launch(m, "bump", nil))
	if got := binary.LittleEndian.Uint64(b.download(counter.Address, 8)); got != 7+1+30 {
		t.Errorf("the counter is %d", got)
	}
	if r := b.ctx.Submit(b.ctx.DefaultStream(), linear(at(counter.Address), host(make([]byte, 1<<24)), 1<<24), nil); r != cuda.ErrorInvalidValue {
		t.Errorf("past a variable's end: %v", r)
	}
	other := b.module(kernels)
	if got := other.Layout().Globals; len(got) != 2 || got[0].Address == l.Globals[0].Address {
		t.Errorf("a second module's variables %+v", got)
	}
	m.Unload()
	m.Unload()
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), launch(m, "bump", nil), nil), cuda.ErrorInvalidHandle)
	b.do(launch(other, "bump", nil))
	b.want(b.sync(), cuda.Success)
}

// testModuleQuota checks that a module's variables count against the quota, as allocations do.
func testModuleQuota(t *testing.T, b *bench) {
	var used atomic.Int64
	const most, large = 24 << 20, 16 << 20
	b.start(Options{Quota: func(delta int64) bool {
		if used.Add(delta) > most {
			used.Add(-delta)
			return false
		}
		return true
	}})
	before := used.Load()
	const text = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 8 .b8 room[16777216];\n.visible .entry none()\n{\n\tret;\n}\n\x00"
	m, log, r := b.ctx.LoadModule([]byte(text))
	if r != cuda.Success {
		t.Fatalf("%v: %s", r, log)
	}
	if n := used.Load() - before; n < large {
		t.Errorf("a variable of 16 MiB counts as %d bytes", n)
	}
	if _, _, r := b.ctx.LoadModule([]byte(text)); r != cuda.ErrorOutOfMemory {
		t.Errorf("a second one, where there is room for one: %v", r)
	}
	m.Unload()
	if n := used.Load(); n != before {
		t.Errorf("after it was unloaded it counts as %d bytes", n-before)
	}
	if _, _, r := b.ctx.LoadModule([]byte(text)); r != cuda.Success {
		t.Errorf("again: %v", r)
	}
	gone := make(chan struct{})
	b.ctx.Destroy(func() { close(gone) })
	<-gone
	if n := used.Load(); n != 0 {
		t.Errorf("%d bytes of the quota are not given back", n)
	}
}

// testInspect checks that Inspect returns the same layout as loading the image does, and places nothing on the device.
func testInspect(t *testing.T, b *bench) {
	b.start(Options{})
	want := *b.module(kernels).Layout()
	for _, d := range []accel.Device{b.dev, b.open(b, Options{})} { // the second has no context
		got, log, r := d.Inspect([]byte(kernels))
		if r != cuda.Success {
			t.Fatalf("%v: %s", r, log)
		}
		if !reflect.DeepEqual(got.Functions, want.Functions) || len(got.Globals) != len(want.Globals) {
			t.Errorf("inspected %+v, loaded %+v", got, want)
		}
		for i, g := range got.Globals {
			w := want.Globals[i]
			w.Address = 0
			if g != w {
				t.Errorf("inspected %+v, loaded %+v", g, w)
			}
		}
		for _, bad := range []string{"", "hello", ptxHead + "?", string(linked.Append(nil, linked.ToCompile, linked.Object{Text: []byte(kernels)}))} {
			if _, log, r := d.Inspect([]byte(bad)); r == cuda.Success || bad != "" && log == "" {
				t.Errorf("%.20q: %v, %q", bad, r, log)
			}
		}
	}
}

const ptxHead = ".version 6.0\n.target sm_50\n.address_size 64\n"

func testBadModules(t *testing.T, b *bench) {
	b.start(Options{})
	elf := make([]byte, 64)
	copy(elf, "\x7fELF\x02\x01\x01")
	elf[18] = 190
	outside := bytes.Clone(elf)
	binary.LittleEndian.PutUint64(outside[40:], 1<<60)
	outside[58], outside[60] = 64, 9
	for name, c := range map[string]struct {
		image string
		want  []cuda.Result
		log   string
	}{
		"nothing":        {"", []cuda.Result{cuda.ErrorInvalidImage}, ""},
		"noise":          {"\x01\x02\x03\x04\x05", []cuda.Result{cuda.ErrorInvalidImage}, ""},
		"no PTX":         {"hello, world", []cuda.Result{cuda.ErrorInvalidImage}, ""},
		"a mistake":      {ptxHead + ".visible .entry k()\n{\n\tfrobnicate.u32 %r1;\n}\n", []cuda.Result{cuda.ErrorInvalidPTX}, "line 6"},
		"undefined":      {ptxHead + ".extern .func g();\n.visible .entry k() { call g; ret; }\n", []cuda.Result{cuda.ErrorInvalidPTX, cuda.ErrorInvalidImage, cuda.ErrorUnknown}, "g"},
		"ELF for others": {"\x7fELF" + strings.Repeat("\x02", 60), []cuda.Result{cuda.ErrorInvalidImage, cuda.ErrorNoBinaryForGPU}, ""},
		"ELF cut":        {string(elf[:40]), []cuda.Result{cuda.ErrorInvalidImage, cuda.ErrorNoBinaryForGPU}, ""},
		"ELF outside":    {string(outside), []cuda.Result{cuda.ErrorInvalidImage, cuda.ErrorNoBinaryForGPU}, ""},
		"fat binary":     {"\x50\xed\x55\xba\x01\x00\x10\x00\xff\xff\xff\xff\xff\xff\xff\xff", []cuda.Result{cuda.ErrorInvalidImage}, ""},
	} {
		m, log, r := b.ctx.LoadModule([]byte(c.image))
		if m != nil || !slices.Contains(c.want, r) || !strings.Contains(log, c.log) {
			t.Errorf("%s: %v, %q, want %v and %q", name, r, log, c.want, c.log)
		}
	}
	b.want(b.ctx.Err(), cuda.Success)
	b.module(kernels)
}

func testLinked(t *testing.T, b *bench) {
	b.start(Options{})
	const (
		calls   = ptxHead + ".extern .func g();\n.visible .entry k() { call g; ret; }\n.visible .global .u32 n = 3;\x00"
		defines = ptxHead + ".visible .func g() { ret; }\n"
	)
	image := func(p linked.Purpose, texts ...string) []byte {
		var all []linked.Object
		for i, text := range texts {
			all = append(all, linked.Object{Name: string(rune('a' + i)), Text: []byte(text)})
		}
		return linked.Append(nil, p, all...)
	}
	for _, c := range []struct {
		name    string
		image   []byte
		fine    bool
		kernels int
	}{
		{"load", image(linked.ToLoad, calls, defines), true, 1},
		{"link", image(linked.ToLink, calls, defines), true, 0},
		{"one of two", image(linked.ToCompile, calls), true, 0},
		{"undefined", image(linked.ToLink, calls), false, 0},
		{"undefined, to load", image(linked.ToLoad, calls), false, 0},
		{"mistake", image(linked.ToCompile, ptxHead+"?"), false, 0},
		{"empty", image(linked.ToLoad), false, 0},
		{"damaged", image(linked.ToLoad, calls)[:30], false, 0},
	} {
		m, log, r := b.ctx.LoadModule(c.image)
		if (r == cuda.Success) != c.fine || !c.fine && log == "" {
			t.Errorf("%s: %v, %q", c.name, r, log)
			continue
		}
		if !c.fine {
			continue
		}
		l := m.Layout()
		if len(l.Functions) != c.kernels {
			t.Errorf("%s: %d kernels", c.name, len(l.Functions))
		}
		if c.kernels > 0 {
			if len(l.Globals) != 1 || l.Globals[0].Name != "n" || l.Globals[0].Size != 4 {
				t.Errorf("%s: variables %+v", c.name, l.Globals)
			}
			b.do(launch(m, "k", nil))
		}
		m.Unload()
	}
}

func testLaunches(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.module(kernels)
	const n = 4096
	p, q := b.alloc(4*n), b.alloc(4*n)
	var in []byte
	for i := range uint32(n) {
		in = binary.LittleEndian.AppendUint32(in, i)
	}
	b.upload(p, in)
	w := launch(m, "add", binary.LittleEndian.AppendUint32(words64(q, p), 5))
	w.Grid[0], w.Block[0] = n/128, 128
	for _, w := range []accel.Work{w, &w} {
		b.do(w)
	}
	w.Cooperative, w.Grid[0], w.Block[0] = true, 2, 64
	w.Params = binary.LittleEndian.AppendUint32(words64(p, q), 2)
	b.do(w)
	for i, word := range [][2]uint32{{0, 0 + 5 + 2}, {127, 127 + 5 + 2}, {128, 128}, {n - 1, n - 1}} {
		if got := binary.LittleEndian.Uint32(b.download(p+4*uint64(word[0]), 4)); got != word[1] {
			t.Errorf("%d: element %d is %d, want %d", i, word[0], got, word[1])
		}
	}
	params := make([]byte, 56)
	params[0], params[16], params[32+16], params[52] = 1, 2, 3, 4
	copy(params[8:], words64(q))
	b.do(launch(m, "places", params))
	if got := binary.LittleEndian.Uint32(b.download(q, 4)); got != 10 {
		t.Errorf("the sum of the parameters is %d", got)
	}
	shift := launch(m, "shift", binary.LittleEndian.AppendUint32(words64(q), 60<<10))
	shift.SharedBytes = 62 << 10 // more than is available without a request for it
	b.do(shift)
	if got := binary.LittleEndian.Uint32(b.download(q, 4)); got != 60<<10 {
		t.Errorf("by way of shared memory there is %d", got)
	}
	// After Submit the caller may reuse the parameters.
	s := b.stream(1)
	k := b.spinner()
	b.submit(s, k.work())
	w = launch(m, "add", binary.LittleEndian.AppendUint32(words64(q, p), 100))
	b.submit(s, w)
	clear(w.Params)
	k.letGo()
	b.want(b.sync(), cuda.Success)
	if got := binary.LittleEndian.Uint32(b.download(q, 4)); got != 107 {
		t.Errorf("with parameters that changed after Submit there is %d", got)
	}
}

func testHostileLaunches(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.module(kernels)
	p := b.alloc(64)
	params := binary.LittleEndian.AppendUint32(words64(p, p), 1)
	for name, change := range map[string]func(*accel.Launch){
		"no blocks":    func(w *accel.Launch) { w.Grid[0] = 0 },
		"no threads":   func(w *accel.Launch) { w.Block[2] = 0 },
		"big block":    func(w *accel.Launch) { w.Block = [3]uint32{1024, 2, 1} },
		"deep block":   func(w *accel.Launch) { w.Block[2] = 65 },
		"tall grid":    func(w *accel.Launch) { w.Grid[1] = 65536 },
		"wide grid":    func(w *accel.Launch) { w.Grid[0] = 1 << 31 },
		"short params": func(w *accel.Launch) { w.Params = w.Params[:19] },
		"no params":    func(w *accel.Launch) { w.Params = nil },
		"much shared":  func(w *accel.Launch) { w.SharedBytes = 1 << 31 },
		"more shared":  func(w *accel.Launch) { w.SharedBytes = 512 << 10 },
	} {
		w := launch(m, "add", params)
		change(&w)
		if r := b.ctx.Submit(b.ctx.DefaultStream(), w, nil); r != cuda.ErrorInvalidValue {
			t.Errorf("%s: %v", name, r)
		}
	}
	for _, index := range []int{-1, 7, 1 << 40} {
		b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Launch{Module: m, Function: index, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}}, nil), cuda.ErrorInvalidHandle)
	}
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Launch{}, nil), cuda.ErrorInvalidHandle)
	b.want(b.sync(), cuda.Success)
	b.do(launch(m, "add", params))
}
