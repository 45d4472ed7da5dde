package ptx

// Mod is a modifier of an opcode, other than its types.
type Mod uint8

// The modifiers.
const (
	RN Mod = iota
	RZ
	RM
	RP
	RNI
	RZI
	RMI
	RPI
	FTZ
	SAT
	Approx
	Full
	Lo
	Hi
	Wide
	Uni
	EQ
	NE
	LT
	LE
	GT
	GE
	LSU
	HSU
	EQU
	NEU
	LTU
	LEU
	GTU
	GEU
	NUM
	NAN
	And
	Or
	Xor
	Volatile
	Relaxed
	Acquire
	Release
	AcqRel
	Weak
	CTA
	GPU
	GL
	SYS
	Cluster
	NC
	ModGlobal
	ModShared
	ModConst
	ModLocal
	ModParam
	V2
	V4
	V8
	To
	CC
	Sync
	Arrive
	Warp
	Red
	Popc
	Add
	Inc
	Dec
	Min
	Max
	Exch
	CAS
	Up
	Down
	BFly
	Idx
	All
	Any
	Ballot
	D1
	D2
	D3
	Level
	CacheCA
	CacheCG
	CacheCS
	CacheLU
	CacheCV
	CacheWB
	CacheWT
	EvictFirst
	EvictLast
	EvictNormal
	EvictUnchanged
	NoAllocate
	L264
	L2128
	L2256
	L
	R
	Clamp
	Wrap
	SC
	Aligned
	NaNMod
	F4E
	B4E
	RC8
	ECL
	ECR
	RC16
	ShiftAmt
	Finite
	Infinite
	Number
	NotANumber
	Normal
	Subnormal
	MMIO
	XorSign
	Abs
	SHR7
	SHR15
	PO
	LaunchDependents
	Wait
	Relu
	L2EvictFirst
	L2EvictLast
	L2EvictNormal
	L2
	L1
	ProxyAlias
	Async
	ProxyAsyncGeneric
	MbarrierInit
	Proxy
	RestrictCTA
	RestrictCluster
	L2EvictUnchanged
	CacheHint
	CommitGroup
	WaitGroup
	WaitAll
	Fractional
	Range
	ConvertPolicy
	NoFTZ
	SatFinite
	RNA
	Pack
	Row
	Col
	SecondRow
	SecondCol
	M8N8
	M8N8K4
	M8N8K16
	M8N8K32
	M8N8K128
	M16N8K4
	M16N8K8
	M16N8K16
	M16N8K32
	M16N8K64
	M16N8K128
	M16N8K256
	M16N16K8
	M16N16K16
	M8N32K16
	M32N8K16
	X1
	X2
	X4
	Trans
	MatrixA // also the alpha of tld4
	MatrixB // also the blue of tld4, and bytes of surfaces
	MatrixC
	MatrixD
	MatrixLoad
	MatrixStore
	MatrixMul
	A1D // from here on: of textures and surfaces
	A2D
	Cube
	ACube
	Base
	Grad
	Trap
	Zeros
	Samples
	Green
	QWidth
	QHeight
	QDepth
	QDataType
	QOrder
	QNormalized
	QArraySize
	QLevels
	QSamples
	QLayout
	QUnnormalized
	QFilter
	QAddress0
	QAddress1
	QAddress2
	Mbarrier // from here on: modifiers of mbarriers and of operations that complete on them
	InitMod
	Inval
	ArriveDrop
	ExpectTx
	CompleteTx
	NoComplete
	NoInc
	Parity
	TestWait
	TryWait
	PendingCount
	Bulk
	BulkGroup
	CompleteBytes
	Reduce
	Read
	PrefetchMod
	MaskMod
	Multicast
	ByteMask
	IsTexture
	IsSampler
	IsSurface
	numMods
)

var modNames = [numMods]string{
	"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "approx", "full", "lo", "hi", "wide", "uni",
	"eq", "ne", "lt", "le", "gt", "ge", "ls", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
	"and", "or", "xor", "volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "cta", "gpu", "gl", "sys", "cluster", "nc",
	"global", "shared", "const", "local", "param", "v2", "v4", "v8", "to", "cc", "sync", "arrive", "warp", "red", "popc",
	"add", "inc", "dec", "min", "max", "exch", "cas", "up", "down", "bfly", "idx", "all", "any", "ballot",
	"1d", "2d", "3d", "level", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::evict_first", "L1::evict_last",
	"L1::evict_normal", "L1::evict_unchanged", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B", "l", "r", "clamp", "wrap", "sc", "aligned",
	"NaN", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16", "shiftamt", "finite", "infinite", "number", "notanumber",
	"normal", "subnormal", "mmio", "xorsign", "abs",
	"shr7", "shr15", "po", "launch_dependents", "wait", "relu", "L2::evict_first", "L2::evict_last", "L2::evict_normal", "L2", "L1",
	"alias", "async", "async::generic", "mbarrier_init", "proxy", "sync_restrict::shared::cta", "sync_restrict::shared::cluster",
	"L2::evict_unchanged", "L2::cache_hint",
	"commit_group", "wait_group", "wait_all", "fractional", "range", "cvt", "noftz", "satfinite", "rna", "pack",
	"row", "col", "row=2", "col=2", "m8n8", "m8n8k4", "m8n8k16", "m8n8k32", "m8n8k128", "m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32",
	"m16n8k64", "m16n8k128", "m16n8k256", "m16n16k8", "m16n16k16", "m8n32k16", "m32n8k16", "x1", "x2", "x4", "trans",
	"a", "b", "c", "d", "load", "store", "mma",
	"a1d", "a2d", "cube", "acube", "base", "grad", "trap", "zero", "p", "g",
	"width", "height", "depth", "channel_data_type", "channel_order", "normalized_coords", "array_size", "num_mipmap_levels",
	"num_samples", "memory_layout", "force_unnormalized_coords", "filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2",
	"mbarrier", "init", "inval", "arrive_drop", "expect_tx", "complete_tx", "noComplete", "noinc", "parity", "test_wait", "try_wait",
	"pending_count", "bulk", "bulk_group", "mbarrier::complete_tx::bytes", "reduce", "read", "prefetch", "mask", "multicast::cluster", "cp_mask",
	"texref", "samplerref", "surfref",
}

var modByName = func() map[string]Mod {
	m := map[string]Mod{}
	for i, n := range modNames {
		m[n] = Mod(i)
	}
	// Each block is a cluster of its own, so a block's shared memory is its cluster's, too.
	m["shared::cta"], m["shared::cluster"] = ModShared, ModShared
	m["param::entry"], m["param::func"] = ModParam, ModParam
	return m
}()

// Mods is a set of modifiers.
type Mods [(int(numMods) + 63) / 64]uint64

// Has reports whether m is in the set.
func (s *Mods) Has(m Mod) bool { return s[m>>6]>>(m&63)&1 != 0 }

// Add puts m into the set.
func (s *Mods) Add(m Mod) { s[m>>6] |= 1 << (m & 63) }

// within reports whether all of the set are in o.
func (s *Mods) within(o *Mods) bool {
	for i := range s {
		if s[i]&^o[i] != 0 {
			return false
		}
	}
	return true
}

// meets reports whether any of the set is in o.
func (s *Mods) meets(o *Mods) bool {
	for i := range s {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// second returns the modifier that m represents after those in the set: of two layouts the second is that of the matrix
// B. It has no spelling of its own.
func (s *Mods) second(m Mod) Mod {
	if m == Row && (s.Has(Row) || s.Has(Col)) {
		return SecondRow
	}
	if m == Col && (s.Has(Row) || s.Has(Col)) {
		return SecondCol
	}
	return m
}

// First returns the first of ms in the set, or def.
func (s *Mods) First(def Mod, ms ...Mod) Mod {
	for _, m := range ms {
		if s.Has(m) {
			return m
		}
	}
	return def
}

// Vector returns the number of elements of a vector access.
func (s *Mods) Vector() int {
	switch s.First(RN, V2, V4, V8) {
	case V2:
		return 2
	case V4:
		return 4
	case V8:
		return 8
	}
	return 1
}

// doubleVector turns the modifiers into those of an access to twice as many elements: two halves for each of 128 bits.
func (s *Mods) doubleVector() {
	if s.Has(V2) {
		s[V2>>6] &^= 1 << (V2 & 63)
		s.Add(V4)
	} else {
		s.Add(V2)
	}
}

// Space returns the state space that the modifiers name.
func (s *Mods) Space() Space {
	switch s.First(RN, ModGlobal, ModShared, ModConst, ModLocal, ModParam) {
	case ModGlobal:
		return Global
	case ModShared:
		return Shared
	case ModConst:
		return Const
	case ModLocal:
		return Local
	case ModParam:
		return ParamSpace
	}
	return Generic
}
