package soft

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pegasus/accel/linked"
	"pegasus/cuda"
)

// linkedImage returns the image that the guest's linker makes of texts, which get names a, b, ….
func linkedImage(p linked.Purpose, texts ...string) []byte {
	var objects []linked.Object
	for i, text := range texts {
		objects = append(objects, linked.Object{Name: string(rune('a' + i)), Text: []byte(text)})
	}
	return linked.Append(nil, p, objects...)
}

const (
	linkHead = ".version 6.0\n.target sm_50\n.address_size 64\n"
	callsG   = linkHead + ".extern .func g();\n.visible .entry k() { call g; ret; }\n.visible .global .u32 n = 3;\x00"
	definesG = linkHead + ".visible .func g() { ret; }\n"
)

// A function's virtual architecture is that of the .target of its object, whatever the .version is.
func TestVirtualArchitecture(t *testing.T) {
	_, c := open(t, nil)
	for _, i := range []struct {
		version, target string
		want            int32
	}{
		{"6.4", ".target sm_70", 70}, {"8.1", ".target sm_70", 70}, {"9.0", ".target sm_75, texmode_independent", 75},
		{"7.0", ".target sm_52", 52}, {"1.4", ".target sm_13", 13}, {"8.7", ".target sm_90a", 90}, {"9.0", ".target sm_100f", 100},
		{"9.0", ".target sm_120", 120}, {"8.0", ".target sm_50 .target sm_70", 70}, {"6.0", "", 10},
	} {
		text := ".version " + i.version + "\n" + i.target + "\n.entry k() { ret; }\n"
		m := load(t, c, text)
		if got := m.Layout().Functions[0].PTXVersion; got != i.want {
			t.Errorf("%q: %d, want %d", text, got, i.want)
		}
		m.Unload()
	}
	m, log, r := c.LoadModule(linkedImage(linked.ToLoad, ".version 8.1\n.target sm_60\n.visible .entry a() { ret; }", ".version 6.4\n.target sm_75\n.visible .entry b() { ret; }"))
	if r != cuda.Success {
		t.Fatal(r, log)
	}
	for _, f := range m.Layout().Functions {
		if want := map[string]int32{"a": 60, "b": 75}[f.Name]; f.PTXVersion != want {
			t.Errorf("%s of a linked image: %d, want %d", f.Name, f.PTXVersion, want)
		}
	}
}

func TestLinkedImages(t *testing.T) {
	_, c := open(t, nil)
	for _, test := range []struct {
		name    string
		image   []byte
		result  cuda.Result
		log     string
		kernels int
	}{
		{"load", linkedImage(linked.ToLoad, callsG, definesG), cuda.Success, "", 1},
		{"link", linkedImage(linked.ToLink, callsG, definesG), cuda.Success, "", 0},
		{"one of two", linkedImage(linked.ToCompile, callsG), cuda.Success, "", 0},
		{"undefined", linkedImage(linked.ToLink, callsG), cuda.ErrorInvalidPTX, "a: function g is not defined", 0},
		{"undefined, to load", linkedImage(linked.ToLoad, callsG), cuda.ErrorInvalidPTX, "a: function g is not defined", 0},
		{"mistake", linkedImage(linked.ToCompile, linkHead+"?"), cuda.ErrorInvalidPTX, "ptx line 4: a: ", 0},
		{"empty", linkedImage(linked.ToLoad), cuda.ErrorInvalidPTX, "0 objects", 0},
		{"many", linkedImage(linked.ToLoad, make([]string, 5000)...), cuda.ErrorInvalidPTX, "4097 objects cannot", 0},
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

// Inspecting an image returns the same as loading it, except for addresses, and places nothing.
func TestInspectedImages(t *testing.T) {
	d, c := open(t, nil)
	before := d.MemoryFree()
	for _, image := range [][]byte{[]byte(callsF), linkedImage(linked.ToLoad, callsG, definesG)} {
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
		"damaged":          {[]byte(linked.Magic), cuda.ErrorInvalidImage, "damaged"},
		"not to be loaded": {linkedImage(linked.ToCompile, callsG), cuda.ErrorInvalidImage, "not to be loaded"},
	} {
		if _, log, r := d.Inspect(c.image); r != c.want || !strings.Contains(log, c.log) {
			t.Errorf("%s: %v, %q", name, r, log)
		}
	}
}

const callsF = linkHead + ".visible .global .u32 word[3];\n.const .f32 scale = 0f3F800000;\n" +
	".visible .entry one(.param .u64 at, .param .u8 b, .param .f64 c)\n.maxntid 128\n{\n.shared .b8 s[64];\n.reg .u64 %p;\nmov.u64 %p, s;\nret;\n}\n" +
	".visible .entry two() { ret; }\n"
