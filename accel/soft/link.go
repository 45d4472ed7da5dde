package soft

import (
	"bytes"
	"encoding/binary"

	"pegasus/accel/ptx"
)

// An image that the guest's linker made has objects of PTX text:
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
const (
	linkMagic  = "\x7fPTXLINK"
	linkHeader = 24
	linkObject = 16
)

// purpose says what is to be done with the objects.
type purpose uint32

const (
	toLoad    purpose = iota // link and load them
	toCompile                // only say whether each is right, whatever others are to come
	toLink                   // only say whether they can be linked
)

// readLinked takes the objects out of an image, which is hostile.
func readLinked(image []byte) (objects []ptx.Object, p purpose, ok bool) {
	if len(image) < linkHeader || binary.LittleEndian.Uint64(image[8:]) != uint64(len(image)) {
		return nil, 0, false
	}
	count, p := binary.LittleEndian.Uint32(image[16:]), purpose(binary.LittleEndian.Uint32(image[20:]))
	rest := image[linkHeader:]
	for range count {
		if len(rest) < linkObject {
			return nil, 0, false
		}
		name, text := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		rest = rest[linkObject:]
		if name > uint64(len(rest)) || text > uint64(len(rest))-name {
			return nil, 0, false
		}
		if len(objects) <= ptx.MaxObjects { // one more is too many already
			objects = append(objects, ptx.Object{Name: string(rest[:name]), Text: rest[name : name+text]})
		}
		rest = rest[name+text:]
	}
	return objects, p, len(rest) == 0 && p <= toLink
}

// linked says whether an image is one of the guest's linker.
func linked(image []byte) bool { return bytes.HasPrefix(image, []byte(linkMagic)) }
