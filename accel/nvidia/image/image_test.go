package image

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pegasus/cuda"
)

func TestVariables(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{".visible .global .align 8 .u64 counter = 7;", "counter"},
		{".global .align 4 .b8 a[12] = {1, 2, 3}; .const .f32 b[2] = {0f3F800000, 1.5}; .global .u8 c;", "a b c"},
		{".extern .global .attribute(.managed) .s32 m; .weak .global .v4 .f32 v;", "m v"},
		{"// .global .u32 no;\n/* .global .u32 nor; */ .global .u32 yes;", "yes"},
		{".visible .entry k(.param .u64 p)\n{\n\t.reg .b64 %rd<2>;\n\tld.global.u32 %r1, [x];\n\t{ .global .u32 inner; }\n}\n.global .u32 after;", "inner after"},
		{".visible .global .align 8 .b8 a[8], b[100]; .const .f32 c = 1.5, d[2] = {1, 2}, e;", "a b c d e"},
		{".global .v4 .f32 v<3>; .global .u32 w;", "v0 v1 v2 w"}, {".global .u32 v<3", "v0 v1 v2"}, {".global <3>", ""}, {".global .u32 v<-1>;", "v"},
		{".visible.global .u32 x; st.volatile.global.u32 [y], %r1;", "x"},
		{".entry k() .maxntid 32, 1, 1 { ret; } .const .u64 z;", "z"},
		{".global .texref t; .global .surfref s; .global .samplerref q; .global .b32 r;", "r"},
		{".global .u32 $odd_name.1;", "$odd_name"},
		{".file 1 \"a.global .u32 x;.cu\"\n.global .u32 y;", "y"},
		{".section .debug_str { .b8 1,2 } .global .u32 d;", "d"},
		{".global", ""}, {".global .align", ""}, {".global .attribute(", ""}, {".global ;", ""}, {"{{{", ""}, {"/* ", ""}, {"\"", ""},
	} {
		names, _ := Variables([]byte(c.text))
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%q has %q, want %q", c.text, got, c.want)
		}
	}
}

// The sizes of variables.
func TestBytesOfVariables(t *testing.T) {
	for text, want := range map[string]uint64{
		"":                                      0,
		".visible .global .align 8 .u64 n = 7;": 8,
		".global .b8 a[8], b[100000000];":       100000008,
		".global .v4 .f32 v<1000>; .const .f16x2 h;":                 16001,
		".global .align 16 .b8 a[3][5] = {{1, 2}, {3}};":             15,
		".extern .global .b8 a[100]; .weak .global .s16 b;":          2,
		".global .b64 a[0x10000000000000000];":                       8,
		".global .b64 a[0xffffffffffffffff], b[0xffffffffffffffff];": mostBytes,
	} {
		if _, got := Variables([]byte(text)); got != want {
			t.Errorf("%q takes %d bytes, want %d", text, got, want)
		}
	}
}

// The output of real compilers.
func TestVariablesOfPrograms(t *testing.T) {
	all, err := filepath.Glob("../../../guest/bench/kernels/*.ptx")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d programs, %v", len(all), err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names, _ := Variables(text)
		for _, name := range names {
			if !strings.Contains(string(text), " "+name) {
				t.Errorf("%s: %q", path, name)
			}
		}
	}
}

// elf builds a cubin of sections; the first two, none and the names', are its own.
type elf struct {
	names []byte
	parts []part2
}

type part2 struct {
	name  uint32
	kind  uint32
	link  uint32
	data  []byte
	empty uint64 // bytes, of a section that is loaded and has nothing in the file
}

func newELF() *elf {
	e := &elf{names: []byte{0}}
	e.parts = []part2{{}, {name: e.name(".shstrtab"), kind: 3}}
	return e
}

func (e *elf) name(s string) uint32 {
	at := len(e.names)
	e.names = append(append(e.names, s...), 0)
	return uint32(at)
}

func (e *elf) add(name string, kind, link uint32, data []byte) uint16 {
	e.parts = append(e.parts, part2{name: e.name(name), kind: kind, link: link, data: data})
	return uint16(len(e.parts) - 1)
}

func (e *elf) bytes() []byte {
	le := binary.LittleEndian
	e.parts[1].data = e.names
	b := make([]byte, headerBytes)
	copy(b, ELF+"\x02\x01\x01\x33\x07")
	le.PutUint16(b[18:], machineCUDA)
	le.PutUint16(b[58:], sectionBytes)
	le.PutUint16(b[60:], uint16(len(e.parts)))
	le.PutUint16(b[62:], 1)
	var headers []byte
	for _, p := range e.parts {
		h := make([]byte, sectionBytes)
		le.PutUint32(h, p.name)
		le.PutUint32(h[4:], p.kind)
		le.PutUint64(h[24:], uint64(len(b)))
		le.PutUint64(h[32:], uint64(len(p.data)))
		if p.empty != 0 {
			le.PutUint64(h[8:], sectionLoaded)
			le.PutUint64(h[32:], p.empty)
		}
		le.PutUint32(h[40:], p.link)
		headers = append(headers, h...)
		b = append(b, p.data...)
	}
	le.PutUint64(b[40:], uint64(len(b)))
	return append(b, headers...)
}

func symbol(name uint32, info, other byte, section uint16) []byte {
	b := make([]byte, symbolBytes)
	binary.LittleEndian.PutUint32(b, name)
	b[4], b[5] = info, other
	binary.LittleEndian.PutUint16(b[6:], section)
	return b
}

func paramShort(ordinal, offset uint16, size uint32) []byte {
	b := []byte{formatSized, infoParam, paramRecord, 0, 0, 0, 0, 0}
	b = binary.LittleEndian.AppendUint16(b, ordinal)
	b = binary.LittleEndian.AppendUint16(b, offset)
	return binary.LittleEndian.AppendUint32(b, size<<18|0x1f000)
}

func paramLong(ordinal, offset, size uint16) []byte {
	b := []byte{formatSized, infoParamLong, paramRecord, 0, 0, 0, 0, 0}
	for _, v := range []uint16{ordinal, offset, size, 0} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

// sample has two kernels, a function and two variables.
func sample() []byte {
	e := newELF()
	names := []byte("\x00one\x00two\x00helper\x00counter\x00table\x00local\x00")
	at := func(s string) uint32 { return uint32(strings.Index(string(names), s)) }
	text := e.add(".text.one", 1, 0, []byte("code"))
	global := e.add(".nv.global", sectionNothing, 0, nil)
	e.parts[global].empty = 96 << 20
	constant := e.add(".nv.constant3", 1, 0, make([]byte, 12))
	e.add(".nv.info.one", 1, 0, slices.Concat([]byte{3, 0x1b, 0xff, 0}, paramShort(1, 8, 4), []byte{2, 0x4a, 0, 0}, paramShort(0, 0, 8), []byte{4, 0x0a, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}))
	e.add(".nv.info.two", 1, 0, paramLong(0, 0, 5000))
	strtab := e.add(".strtab", 3, 0, names)
	e.add(".symtab", sectionSymbols, uint32(strtab), slices.Concat(
		make([]byte, symbolBytes),
		symbol(at("one"), 0x12, entryPoint, text), symbol(at("two"), 0x12, entryPoint, text), symbol(at("helper"), 0x12, 0, text),
		symbol(at("counter"), 0x11, 0, global), symbol(at("table"), 0x11, 0, constant), symbol(at("local"), 0x01, 0, global),
	))
	return e.bytes()
}

func TestReadCubin(t *testing.T) {
	c, err := ReadCubin(sample())
	if err != nil {
		t.Fatal(err)
	}
	if c.Memory != 96<<20 {
		t.Errorf("it takes %d bytes", c.Memory)
	}
	if len(c.Kernels) != 2 || c.Kernels[0].Name != "one" || c.Kernels[1].Name != "two" || strings.Join(c.Variables, " ") != "counter table" {
		t.Errorf("%+v", c)
	}
	if want := []cuda.ParamLayout{{Offset: 0, Size: 8}, {Offset: 8, Size: 4}}; !slices.Equal(c.Kernels[0].Params, want) {
		t.Errorf("the parameters of one are %v", c.Kernels[0].Params)
	}
	if want := []cuda.ParamLayout{{Offset: 0, Size: 5000}}; !slices.Equal(c.Kernels[1].Params, want) {
		t.Errorf("the parameters of two are %v", c.Kernels[1].Params)
	}
}

// A cubin that doesn't lie wholly in the image is refused, however short it was cut.
func TestCutCubin(t *testing.T) {
	good := sample()
	for n := range good {
		if _, err := ReadCubin(good[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken", n, len(good))
		}
	}
	other := sample()
	other[18] = 62
	if _, err := ReadCubin(other); err == nil || !strings.Contains(err.Error(), "machine 62") {
		t.Errorf("code for x86-64: %v", err)
	}
}

func FuzzReadCubin(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(t *testing.T, image []byte) {
		c, err := ReadCubin(image)
		if err == nil && len(c.Kernels) > maxKernels {
			t.Error("too many kernels")
		}
	})
}

func FuzzVariables(f *testing.F) {
	f.Add([]byte(".visible .global .align 8 .u64 counter = 7;"))
	f.Add([]byte(".entry k() { ret; } // x\n.const .f32 b[2] = {0f3F800000};"))
	f.Add([]byte(".global .u32 a<0><3>, b[3]<2>, c; .global .v2 .u64 d<40>;"))
	f.Fuzz(func(t *testing.T, text []byte) {
		names, _ := Variables(text)
		for _, name := range names {
			if name == "" || name[0] == '.' || !strings.Contains(string(text), strings.TrimRight(name, "0123456789")) {
				t.Errorf("%q", name)
			}
		}
	})
}
