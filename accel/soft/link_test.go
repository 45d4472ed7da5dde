package soft

import (
	"encoding/binary"
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
