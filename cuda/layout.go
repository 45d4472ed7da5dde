package cuda

import (
	"encoding/binary"
	"strings"
)

// A module's layout in the arena, as OpModuleLoad writes it:
//
//	u32 version, functionCount, globalCount, stringBytes
//	per function: u32 nameOffset, paramBytes, paramCount, paramFirst,
//	              i32 maxThreads, staticShared, constBytes, localBytes, registers, ptxVersion, binaryVersion, maxDynamicShared
//	u32 paramTotal, 0
//	per parameter, function after function: u32 offset, size
//	per global: u32 nameOffset, kind, u64 address, size
//	names, each ended by a zero byte; zeros up to a multiple of 4
//	per function: i32 refusal, requiredX, requiredY, requiredZ
//
// Hosts of earlier releases do not send the last part, and libcuda.so.1 of those releases does not read it.
const (
	layoutVersion  = 1
	layoutHeader   = 16
	functionRecord = 48
	paramHeader    = 8
	paramRecord    = 8
	globalRecord   = 24
	limitsRecord   = 16
)

// Append encodes m after b.
func (m *ModuleLayout) Append(b []byte) []byte {
	le := binary.LittleEndian
	var names []byte
	name := func(s string) uint32 {
		at := len(names)
		names = append(append(names, s...), 0)
		return uint32(at)
	}
	start := len(b)
	b = le.AppendUint32(b, layoutVersion)
	b = le.AppendUint32(b, uint32(len(m.Functions)))
	b = le.AppendUint32(b, uint32(len(m.Globals)))
	b = le.AppendUint32(b, 0) // size of the names, set at the end
	params := 0
	for i := range m.Functions {
		f := &m.Functions[i]
		for _, v := range [...]uint32{name(f.Name), f.ParamBytes, uint32(len(f.Params)), uint32(params)} {
			b = le.AppendUint32(b, v)
		}
		for _, v := range f.numbers() {
			b = le.AppendUint32(b, uint32(*v))
		}
		params += len(f.Params)
	}
	b = le.AppendUint64(b, uint64(params))
	for i := range m.Functions {
		for _, p := range m.Functions[i].Params {
			b = le.AppendUint32(b, p.Offset)
			b = le.AppendUint32(b, p.Size)
		}
	}
	for _, g := range m.Globals {
		b = le.AppendUint32(b, name(g.Name))
		b = le.AppendUint32(b, uint32(g.Kind))
		b = le.AppendUint64(b, g.Address)
		b = le.AppendUint64(b, g.Size)
	}
	le.PutUint32(b[start+12:], uint32(len(names)))
	b = append(append(b, names...), make([]byte, padding(uint64(len(names))))...)
	for i := range m.Functions {
		for _, v := range m.Functions[i].limits() {
			b = le.AppendUint32(b, uint32(*v))
		}
	}
	return b
}

// padding returns the number of zeros after n bytes of names.
func padding(n uint64) uint64 { return -n & 3 }

// numbers returns pointers to f's plain numbers in the order of the record.
func (f *FunctionLayout) numbers() [8]*int32 {
	return [...]*int32{
		&f.MaxThreads, &f.StaticShared, &f.ConstBytes, &f.LocalBytes,
		&f.Registers, &f.PTXVersion, &f.BinaryVersion, &f.MaxDynamicShared,
	}
}

// limits returns pointers to f's numbers in the last part, in their order.
func (f *FunctionLayout) limits() [4]*int32 {
	return [...]*int32{&f.Refusal, &f.Required[0], &f.Required[1], &f.Required[2]}
}

// Decode decodes m from b, which may have any content, and reports whether it is a layout. The result does
// not alias b.
func (m *ModuleLayout) Decode(b []byte) bool {
	le := binary.LittleEndian
	if len(b) < layoutHeader || le.Uint32(b) != layoutVersion {
		return false
	}
	functions, globals, stringBytes := uint64(le.Uint32(b[4:])), uint64(le.Uint32(b[8:])), uint64(le.Uint32(b[12:]))
	b = b[layoutHeader:]
	// All counts are 32 bits wide: these products and sums cannot overflow.
	if uint64(len(b)) < functions*functionRecord+paramHeader {
		return false
	}
	functionPart, b := b[:functions*functionRecord], b[functions*functionRecord:]
	paramTotal := uint64(le.Uint32(b))
	b = b[paramHeader:]
	var limitsPart []byte // none from hosts of earlier releases
	switch named := paramTotal*paramRecord + globals*globalRecord + stringBytes; uint64(len(b)) {
	case named:
	case named + padding(stringBytes) + functions*limitsRecord:
		limitsPart = b[named+padding(stringBytes):]
	default:
		return false
	}
	paramPart, b := b[:paramTotal*paramRecord], b[paramTotal*paramRecord:]
	globalPart, namePart := b[:globals*globalRecord], b[globals*globalRecord:][:stringBytes]
	// Names are copied once, even if several records refer to them.
	names, params := string(namePart), decodeParams(paramPart)
	m.Functions, m.Globals = make([]FunctionLayout, functions), make([]GlobalLayout, globals)
	next := 0 // functions' parameters follow one another
	for i := range m.Functions {
		f := &m.Functions[i]
		if !f.decode(functionPart[i*functionRecord:], next, params, names) {
			return false
		}
		next += len(f.Params)
		for n, v := range f.limits() {
			if *v = 0; limitsPart != nil {
				*v = int32(le.Uint32(limitsPart[limitsRecord*i+4*n:]))
			}
		}
	}
	for i := range m.Globals {
		r := globalPart[i*globalRecord:]
		g := &m.Globals[i]
		var ok bool
		if g.Name, ok = nameAt(names, le.Uint32(r)); !ok {
			return false
		}
		g.Kind, g.Address, g.Size = GlobalKind(le.Uint32(r[4:])), le.Uint64(r[8:]), le.Uint64(r[16:])
	}
	return true
}

func decodeParams(b []byte) []ParamLayout {
	le := binary.LittleEndian
	params := make([]ParamLayout, len(b)/paramRecord)
	for i := range params {
		params[i] = ParamLayout{le.Uint32(b[i*paramRecord:]), le.Uint32(b[i*paramRecord+4:])}
	}
	return params
}

func (f *FunctionLayout) decode(r []byte, next int, params []ParamLayout, names string) (ok bool) {
	le := binary.LittleEndian
	if f.Name, ok = nameAt(names, le.Uint32(r)); !ok {
		return false
	}
	f.ParamBytes = le.Uint32(r[4:])
	count, first := uint64(le.Uint32(r[8:])), uint64(le.Uint32(r[12:]))
	if first != uint64(next) || first+count > uint64(len(params)) {
		return false
	}
	for i, v := range f.numbers() {
		*v = int32(le.Uint32(r[16+4*i:]))
	}
	if count > 0 {
		f.Params = params[first : first+count : first+count]
	}
	for _, p := range f.Params {
		if uint64(p.Offset)+uint64(p.Size) > uint64(f.ParamBytes) {
			return false
		}
	}
	return true
}

func nameAt(names string, at uint32) (string, bool) {
	if uint64(at) >= uint64(len(names)) {
		return "", false
	}
	name, _, ok := strings.Cut(names[at:], "\x00")
	return name, ok
}
