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

// Extents are the parts of a file that make up a segment, one behind the other.
type Extents []Extent

// Whole is a file from its beginning.
func Whole(bytes uint64) Extents { return Extents{{0, bytes}} }

// Bytes is their length together.
func (e Extents) Bytes() (sum uint64) {
	for _, x := range e {
		sum += x.Bytes
	}
	return sum
}

// Check refuses extents that aren't pages of a file that long, or are more or
// less than a segment.
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

// CheckFile is Check for the extents of an open file. A device has no size: what of it can't be
// mapped shows then.
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

// Part is n bytes of them from off on; false if there aren't so many.
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
