package linked

import (
	"bytes"
	"testing"
)

var two = []Object{{"a", []byte(".version 6.0")}, {"b", nil}}

func TestRead(t *testing.T) {
	image := Append(nil, ToLink, two...)
	objects, p, ok := Read(image, 10)
	if !Is(image) || !ok || p != ToLink || len(objects) != 2 || objects[0].Name != "a" || string(objects[0].Text) != ".version 6.0" || objects[1].Name != "b" {
		t.Fatalf("%v %v %v", objects, p, ok)
	}
	if objects, _, ok := Read(image, 0); !ok || len(objects) != 1 {
		t.Errorf("of two where none may be, %d are kept", len(objects))
	}
	if _, _, ok := Read(Append(nil, ToLink+1), 1); ok {
		t.Error("an image without a purpose is taken")
	}
}

// An image that was cut, or whose numbers are wrong, is refused.
func TestDamaged(t *testing.T) {
	good := Append(nil, ToLoad, two...)
	for n := range good {
		if _, _, ok := Read(good[:n], 10); ok {
			t.Fatalf("the first %d bytes are taken", n)
		}
	}
	for _, at := range []int{8, 16, header, header + 8} {
		for _, wrong := range []byte{1, 0x80, 0xff} {
			bad := bytes.Clone(good)
			for i := range 4 {
				bad[at+i] ^= wrong
			}
			if _, _, ok := Read(bad, 10); ok {
				t.Errorf("taken with byte %d wrong by %#x", at, wrong)
			}
		}
	}
	if _, _, ok := Read(append(good, 0), 10); ok {
		t.Error("taken with a byte too many")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(Append(nil, ToLoad, two...))
	f.Fuzz(func(t *testing.T, image []byte) {
		objects, p, ok := Read(image, 1<<20)
		if ok && Is(image) && !bytes.Equal(Append(nil, p, objects...), image) {
			t.Error("what was read makes another image")
		}
	})
}
