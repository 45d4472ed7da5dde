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
	BF16
	BF16x2
	TF32
	E4M3
	E5M2
	E4M3x2
	E5M2x2
	// Integers of less than a byte, which are held in registers of 32 bits.
	B1
	U2
	S2
	U4
	S4
	F32x2 // two f32 in a register of 64 bits
	numTypes
)

var typeNames = [numTypes]string{"", "pred", "b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64",
	"s8", "s16", "s32", "s64", "u16x2", "s16x2", "f16", "f16x2", "f32", "f64",
	"bf16", "bf16x2", "tf32", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "b1", "u2", "s2", "u4", "s4", "f32x2"}

var typeSizes = [numTypes]int{0, 0, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 4, 4, 2, 4, 4, 8,
	2, 4, 4, 1, 1, 2, 2, 4, 4, 4, 4, 4, 8}

func (t Type) String() string { return typeNames[t] }

// Size returns the size in bytes of a register that holds the type; a predicate has none.
func (t Type) Size() int { return typeSizes[t] }

// Signed reports whether the type is a signed integer.
func (t Type) Signed() bool { return t >= S8 && t <= S64 }

// Float reports whether the type is a floating-point type.
func (t Type) Float() bool { return t >= F16 && t <= E5M2x2 }

// Half reports whether the type is a float of 16 bits, or a pair of them.
func (t Type) Half() bool { return t == F16 || t == F16x2 || t == BF16 || t == BF16x2 }

// Paired reports whether the type is a pair of floats.
func (t Type) Paired() bool { return t == F16x2 || t == BF16x2 || t == E4M3x2 || t == E5M2x2 }

// declarable reports whether a register or a variable may have the type.
func (t Type) declarable() bool { return t <= F64 }

var typeByName = func() map[string]Type {
	m := map[string]Type{}
	for t, n := range typeNames {
		if n != "" {
			m[n] = Type(t)
		}
	}
	return m
}()
