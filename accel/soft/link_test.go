package soft

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pegasus/cuda"
)

// linkedImage is what the guest's linker makes of texts, which get names a, b, ….
func linkedImage(p purpose, texts ...string) []byte {
	image := append([]byte(linkMagic), make([]byte, 8)...)
	image = binary.LittleEndian.AppendUint32(image, uint32(len(texts)))
	image = binary.LittleEndian.AppendUint32(image, uint32(p))
	for i, text := range texts {
		image = binary.LittleEndian.AppendUint64(image, 1)
		image = binary.LittleEndian.AppendUint64(image, uint64(len(text)))
		image = append(image, byte('a'+i))
		image = append(image, text...)
	}
	binary.LittleEndian.PutUint64(image[8:], uint64(len(image)))
	return image
}

const (
	linkHead = ".version 6.0\n.target sm_50\n.address_size 64\n"
	callsG   = linkHead + ".extern .func g();\n.visible .entry k() { call g; ret; }\n.visible .global .u32 n = 3;\x00"
	definesG = linkHead + ".visible .func g() { ret; }\n"
)

func TestLinkedImages(t *testing.T) {
	_, c := open(t, nil)
	for _, test := range []struct {
		name    string
		image   []byte
		result  cuda.Result
		log     string
		kernels int
	}{
		{"load", linkedImage(toLoad, callsG, definesG), cuda.Success, "", 1},
		{"link", linkedImage(toLink, callsG, definesG), cuda.Success, "", 0},
		{"one of two", linkedImage(toCompile, callsG), cuda.Success, "", 0},
		{"undefined", linkedImage(toLink, callsG), cuda.ErrorInvalidPTX, "a: function g is not defined", 0},
		{"undefined, to load", linkedImage(toLoad, callsG), cuda.ErrorInvalidPTX, "a: function g is not defined", 0},
		{"mistake", linkedImage(toCompile, linkHead+"?"), cuda.ErrorInvalidPTX, "ptx line 4: a: ", 0},
		{"empty", linkedImage(toLoad), cuda.ErrorInvalidPTX, "0 objects", 0},
		{"many", linkedImage(toLoad, make([]string, 5000)...), cuda.ErrorInvalidPTX, "4097 objects cannot", 0},
		{"no purpose", linkedImage(3, callsG), cuda.ErrorInvalidImage, "damaged", 0},
	} {
		m, log, r := c.LoadModule(test.image)
		if r != test.result || !strings.Contains(log, test.log) {
			t.Errorf("%s: %v, %q", test.name, r, log)
			continue
		}
		if r == cuda.Success {
			if got := len(m.Layout().Functions); got != test.kernels {
				t.Errorf("%s: %d kernels", test.name, got)
			}
			m.Unload()
		}
	}
}

// A linked image that was cut, or whose numbers are wrong, is refused.
func TestDamagedLinkedImages(t *testing.T) {
	good := linkedImage(toLoad, callsG, definesG)
	for n := range good {
		if _, _, ok := readLinked(good[:n]); ok {
			t.Fatalf("the first %d bytes are taken", n)
		}
	}
	for _, at := range []int{8, 16, linkHeader, linkHeader + 8} {
		for _, wrong := range []byte{1, 0x80, 0xff} {
			bad := append([]byte(nil), good...)
			for i := range 4 {
				bad[at+i] ^= wrong
			}
			if _, _, ok := readLinked(bad); ok {
				t.Errorf("taken with byte %d wrong by %#x", at, wrong)
			}
		}
	}
	if _, _, ok := readLinked(append(good, 0)); ok {
		t.Error("taken with a byte too many")
	}
}

// Inspecting an image tells what loading it does, but for addresses, and places nothing.
func TestInspectedImages(t *testing.T) {
	d, c := open(t, nil)
	before := d.MemoryFree()
	for _, image := range [][]byte{[]byte(callsF), linkedImage(toLoad, callsG, definesG)} {
		got, _, r := d.Inspect(image)
		if r != cuda.Success {
			t.Fatal(r)
		}
		if d.MemoryFree() != before {
			t.Error("memory was taken")
		}
		m, _, r := c.LoadModule(image)
		if r != cuda.Success {
			t.Fatal(r)
		}
		want := *m.Layout()
		want.Globals = slices.Clone(want.Globals)
		for i := range want.Globals {
			want.Globals[i].Address = 0
		}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("inspected %+v, loaded %+v", *got, want)
		}
		m.Unload()
	}
	for name, c := range map[string]struct {
		image []byte
		want  cuda.Result
		log   string
	}{
		"mistake":          {[]byte(linkHead + "?"), cuda.ErrorInvalidPTX, "line 4"},
		"machine code":     {[]byte("\x7fELF"), cuda.ErrorNoBinaryForGPU, "no PTX"},
		"nonsense":         {[]byte{1, 2, 3}, cuda.ErrorInvalidImage, "neither"},
		"damaged":          {[]byte(linkMagic), cuda.ErrorInvalidImage, "damaged"},
		"not to be loaded": {linkedImage(toCompile, callsG), cuda.ErrorInvalidImage, "not to be loaded"},
	} {
		if _, log, r := d.Inspect(c.image); r != c.want || !strings.Contains(log, c.log) {
			t.Errorf("%s: %v, %q", name, r, log)
		}
	}
}

const callsF = linkHead + ".visible .global .u32 word[3];\n.const .f32 scale = 0f3F800000;\n" +
	".visible .entry one(.param .u64 at, .param .u8 b, .param .f64 c)\n.maxntid 128\n{\n.shared .b8 s[64];\n.reg .u64 %p;\nmov.u64 %p, s;\nret;\n}\n" +
	".visible .entry two() { ret; }\n"
