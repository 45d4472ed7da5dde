// Package linked reads and writes the images of the guest's linker: objects of PTX text that form one module.
//
//	magic     8 bytes
//	bytes     u64, of the whole image
//	objects   u32, their number
//	purpose   u32
//
// and for each object
//
//	name, text  u64, the bytes of each, which follow in this order
//
// all little-endian and without padding.
//
// Callers: accel/soft and accel/nvidia.
//
// Trust boundary: the image is a guest's, and hostile.
package linked

import (
	"bytes"
	"encoding/binary"
)

// Magic is the first bytes of an image.
const Magic = "\x7fPTXLINK"

const (
	header = 24
	object = 16
)

// Purpose is the operation to perform on the objects.
type Purpose uint32

const (
	ToLoad    Purpose = iota // link and load them
	ToCompile                // only check each by itself: other objects may follow
	ToLink                   // only check whether they can be linked
)

// Object is one PTX text. Text is a part of the image.
type Object struct {
	Name string
	Text []byte
}

// Is reports whether an image comes from the guest's linker.
func Is(image []byte) bool { return bytes.HasPrefix(image, []byte(Magic)) }

// Read returns the objects of an image for which Is returns true. If there are more than most, it returns most+1 of
// them. It returns ok=false for a malformed image.
func Read(image []byte, most int) (objects []Object, p Purpose, ok bool) {
	if len(image) < header || binary.LittleEndian.Uint64(image[8:]) != uint64(len(image)) {
		return nil, 0, false
	}
	count, p := binary.LittleEndian.Uint32(image[16:]), Purpose(binary.LittleEndian.Uint32(image[20:]))
	rest := image[header:]
	for range count {
		if len(rest) < object {
			return nil, 0, false
		}
		name, text := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		rest = rest[object:]
		if name > uint64(len(rest)) || text > uint64(len(rest))-name {
			return nil, 0, false
		}
		if len(objects) <= most {
			objects = append(objects, Object{Name: string(rest[:name]), Text: rest[name : name+text]})
		}
		rest = rest[name+text:]
	}
	return objects, p, len(rest) == 0 && p <= ToLink
}

// Append appends an image to b.
func Append(b []byte, p Purpose, objects ...Object) []byte {
	start := len(b)
	b = append(b, Magic...)
	b = binary.LittleEndian.AppendUint64(b, 0) // its length, set at the end
	b = binary.LittleEndian.AppendUint32(b, uint32(len(objects)))
	b = binary.LittleEndian.AppendUint32(b, uint32(p))
	for _, o := range objects {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(o.Name)))
		b = binary.LittleEndian.AppendUint64(b, uint64(len(o.Text)))
		b = append(b, o.Name...)
		b = append(b, o.Text...)
	}
	binary.LittleEndian.PutUint64(b[start+8:], uint64(len(b)-start))
	return b
}
