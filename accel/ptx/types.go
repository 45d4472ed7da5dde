package ptx

// Type is a fundamental type.
type Type uint8

// The types, in the manual's order of classes.
const (
	NoType Type = iota
	Pred
	B8
	B16
	B32
	B64
	U8
	U16
	U32
	U64
	S8
	S16
	S32
	S64
	U16x2
	S16x2
	F16
	F16x2
	F32
	F64
	numTypes
)

var typeNames = [numTypes]string{"", "pred", "b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64",
	"s8", "s16", "s32", "s64", "u16x2", "s16x2", "f16", "f16x2", "f32", "f64"}

var typeSizes = [numTypes]int{0, 0, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 4, 4, 2, 4, 4, 8}

func (t Type) String() string { return typeNames[t] }

// Size is the size in bytes; a predicate has none.
func (t Type) Size() int { return typeSizes[t] }

// Signed says whether the type is a signed integer.
func (t Type) Signed() bool { return t >= S8 && t <= S64 }

// Float says whether the type is a floating-point type.
func (t Type) Float() bool { return t >= F16 }

var typeByName = func() map[string]Type {
	m := map[string]Type{}
	for t, n := range typeNames {
		if n != "" {
			m[n] = Type(t)
		}
	}
	return m
}()
