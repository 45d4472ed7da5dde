package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pegasus/cuda"
)

// ELF is the start of a cubin: an ELF file for the machine CUDA.
const ELF = "\x7fELF"

// Kernel is a kernel of a cubin.
type Kernel struct {
	Name   string
	Params []cuda.ParamLayout
}

// Cubin is the content of a cubin.
type Cubin struct {
	Kernels   []Kernel
	Variables []string
	Memory    uint64 // bytes of device memory that it occupies, code and variables
}

const (
	machineCUDA = 190

	headerBytes  = 64
	programBytes = 56
	sectionBytes = 64
	symbolBytes  = 24

	sectionSymbols = 2 // SHT_SYMTAB
	sectionNothing = 8 // SHT_NOBITS
	sectionLoaded  = 2 // SHF_ALLOC, a flag

	symbolObject   = 1    // STT_OBJECT
	symbolFunction = 2    // STT_FUNC
	globalBinding  = 1    // STB_GLOBAL
	entryPoint     = 0x10 // in a symbol's other bits: it is a kernel

	// Bounds on the parsed tables.
	maxSections = 1 << 20
	maxSymbols  = 1 << 20
	maxName     = 4 << 10
	maxKernels  = 1 << 16
	maxParams   = 1 << 12
)

var errCubin = errors.New("the cubin is damaged")

// section is a section of an ELF file.
type section struct {
	name string
	kind uint32
	link uint32
	size uint64 // if it is loaded
	data []byte
}

// ReadCubin checks that a cubin lies wholly in the image, since the driver does not receive its length, and returns its
// content.
func ReadCubin(image []byte) (*Cubin, error) {
	all, err := sections(image)
	if err != nil {
		return nil, err
	}
	c := new(Cubin)
	infos := map[string][]byte{}
	for _, s := range all {
		if c.Memory += s.size; c.Memory < s.size {
			return nil, fmt.Errorf("%w: its sections are too large", errCubin)
		}
		if name, ok := strings.CutPrefix(s.name, ".nv.info."); ok {
			infos[name] = s.data
		}
	}
	for _, s := range all {
		if s.kind != sectionSymbols || int(s.link) >= len(all) {
			continue
		}
		if err := c.addSymbols(s.data[:min(len(s.data), maxSymbols*symbolBytes)], all[s.link].data, infos, all); err != nil {
			return nil, err
		}
		break // an ELF file has one table of symbols
	}
	return c, nil
}

// sections returns the sections of the file; each lies in the image, as do its segments.
func sections(image []byte) ([]section, error) {
	le := binary.LittleEndian
	if len(image) < headerBytes || string(image[:4]) != ELF || image[4] != 2 || image[5] != 1 {
		return nil, fmt.Errorf("%w: it is no 64-bit little-endian ELF file", errCubin)
	}
	if machine := le.Uint16(image[18:]); machine != machineCUDA {
		return nil, fmt.Errorf("the image is machine code for the ELF machine %d, not for CUDA's, %d", machine, machineCUDA)
	}
	programs, ok := table(image, le.Uint64(image[32:]), uint64(le.Uint16(image[56:])), uint64(le.Uint16(image[54:])), programBytes)
	if !ok {
		return nil, fmt.Errorf("%w: its program headers lie outside", errCubin)
	}
	for p := programs; len(p) > 0; p = p[programBytes:] {
		if _, ok := part(image, le.Uint64(p[8:]), le.Uint64(p[32:])); !ok {
			return nil, fmt.Errorf("%w: a segment lies outside", errCubin)
		}
	}
	headers, ok := table(image, le.Uint64(image[40:]), uint64(le.Uint16(image[60:])), uint64(le.Uint16(image[58:])), sectionBytes)
	if !ok || len(headers)/sectionBytes > maxSections {
		return nil, fmt.Errorf("%w: its section headers lie outside", errCubin)
	}
	all := make([]section, len(headers)/sectionBytes)
	for i := range all {
		h := headers[i*sectionBytes:]
		s := &all[i]
		s.kind, s.link = le.Uint32(h[4:]), le.Uint32(h[40:])
		if le.Uint64(h[8:])&sectionLoaded != 0 {
			s.size = le.Uint64(h[32:])
		}
		if s.kind == sectionNothing || s.kind == 0 {
			continue
		}
		if s.data, ok = part(image, le.Uint64(h[24:]), le.Uint64(h[32:])); !ok {
			return nil, fmt.Errorf("%w: section %d lies outside", errCubin, i)
		}
	}
	if names := int(le.Uint16(image[62:])); names < len(all) {
		for i := range all {
			all[i].name = textAt(all[names].data, uint64(le.Uint32(headers[i*sectionBytes:])))
		}
	}
	return all, nil
}

// table returns count records of a size at an offset.
func table(image []byte, at, count, size, want uint64) ([]byte, bool) {
	if count == 0 {
		return nil, true
	}
	if size != want {
		return nil, false
	}
	return part(image, at, count*size)
}

func part(image []byte, at, n uint64) ([]byte, bool) {
	if at > uint64(len(image)) || n > uint64(len(image))-at {
		return nil, false
	}
	return image[at : at+n], true
}

// textAt returns the string at an offset, "" if there is none.
func textAt(b []byte, at uint64) string {
	if at >= uint64(len(b)) {
		return ""
	}
	b = b[at:min(uint64(len(b)), at+maxName)]
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return ""
	}
	return string(b[:n])
}

// addSymbols adds the kernels and variables among the symbols.
func (c *Cubin) addSymbols(symbols, names []byte, infos map[string][]byte, all []section) error {
	le := binary.LittleEndian
	for ; len(symbols) >= symbolBytes; symbols = symbols[symbolBytes:] {
		name, info, other, index := textAt(names, uint64(le.Uint32(symbols))), symbols[4], symbols[5], int(le.Uint16(symbols[6:]))
		if name == "" || info>>4 != globalBinding || index == 0 || index >= len(all) {
			continue
		}
		switch info & 15 {
		case symbolFunction:
			if other&entryPoint == 0 {
				continue
			}
			if len(c.Kernels) == maxKernels {
				return fmt.Errorf("the cubin has more than %d kernels", maxKernels)
			}
			params, err := parameters(infos[name])
			if err != nil {
				return fmt.Errorf("kernel %s: %w", name, err)
			}
			c.Kernels = append(c.Kernels, Kernel{Name: name, Params: params})
		case symbolObject:
			if s := all[index].name; strings.HasPrefix(s, ".nv.global") || strings.HasPrefix(s, ".nv.constant") {
				c.Variables = append(c.Variables, name)
			}
		}
	}
	return nil
}

// Records of a .nv.info section: u8 format, u8 attribute, u16 value or length.
const (
	formatSized   = 4
	infoParam     = 0x17 // u32 index, u16 ordinal, u16 offset, u32 with the size in bits 18 to 31
	infoParamLong = 0x45 // u32 index, u16 ordinal, u16 offset, u16 size, u16 attributes
	paramRecord   = 12
)

// parameters returns the parameters that a kernel's .nv.info section lists, in order.
func parameters(info []byte) ([]cuda.ParamLayout, error) {
	le := binary.LittleEndian
	found := map[uint16]cuda.ParamLayout{}
	for len(info) >= 4 {
		format, attribute, value := info[0], info[1], int(le.Uint16(info[2:]))
		info = info[4:]
		if format != formatSized {
			continue
		}
		if value > len(info) {
			return nil, fmt.Errorf("%w: a record of .nv.info is cut", errCubin)
		}
		record := info[:value]
		info = info[value:]
		if attribute != infoParam && attribute != infoParamLong {
			continue
		}
		if len(record) < paramRecord || len(found) >= maxParams {
			return nil, fmt.Errorf("%w: a parameter's record has %d bytes, or there are too many", errCubin, len(record))
		}
		p := cuda.ParamLayout{Offset: uint32(le.Uint16(record[6:])), Size: le.Uint32(record[8:]) >> 18}
		if attribute == infoParamLong {
			p.Size = uint32(le.Uint16(record[8:]))
		}
		found[le.Uint16(record[4:])] = p
	}
	params := make([]cuda.ParamLayout, 0, len(found))
	for i := range len(found) {
		p, ok := found[uint16(i)]
		if !ok {
			return nil, fmt.Errorf("%w: parameter %d of %d is missing", errCubin, i, len(found))
		}
		params = append(params, p)
	}
	return slices.Clip(params), nil
}
