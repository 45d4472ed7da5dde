package callbuf

import (
	"fmt"
	"io/fs"
	"math"
	"os"
)

// An Extent is a part of a file.
type Extent struct {
	Offset uint64 `json:"o"`
	Bytes  uint64 `json:"n"`
}

// Extents are the parts of a file that make up a segment, in order.
type Extents []Extent

// Whole returns the extents of a file from its beginning.
func Whole(bytes uint64) Extents { return Extents{{0, bytes}} }

// Bytes returns their total length.
func (e Extents) Bytes() (sum uint64) {
	for _, x := range e {
		sum += x.Bytes
	}
	return sum
}

// Check returns an error if the extents are not pages of a file of that size, or do not add up to the
// segment.
func (e Extents) Check(segment, file uint64) error {
	var sum uint64
	for _, x := range e {
		if x.Offset%pageBytes != 0 || x.Bytes%pageBytes != 0 || x.Bytes == 0 {
			return fmt.Errorf("extent of %d bytes at %d: not whole pages", x.Bytes, x.Offset)
		}
		if x.Offset > file || x.Bytes > file-x.Offset {
			return fmt.Errorf("extent of %d bytes at %d: beyond the file's %d", x.Bytes, x.Offset, file)
		}
		if sum += x.Bytes; sum > segment { // before it can overflow
			break
		}
	}
	if sum != segment {
		return fmt.Errorf("extents of %d bytes for a segment of %d", sum, segment)
	}
	return nil
}

// CheckFile is Check for the extents of an open file. A device has no size: mapping it fails if it is too
// small.
func (e Extents) CheckFile(segment uint64, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	bytes := uint64(st.Size())
	if st.Mode()&fs.ModeDevice != 0 {
		bytes = math.MaxInt64
	}
	return e.Check(segment, bytes)
}

// Part returns n bytes of the extents from off on; false if they are too short.
func (e Extents) Part(off, n uint64) (part Extents, ok bool) {
	for _, x := range e {
		if off >= x.Bytes {
			off -= x.Bytes
			continue
		}
		take := min(x.Bytes-off, n)
		if take > 0 {
			part = append(part, Extent{x.Offset + off, take})
		}
		off, n = 0, n-take
		if n == 0 {
			break
		}
	}
	return part, n == 0
}
