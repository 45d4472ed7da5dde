package soft

import (
	"pegasus/accel/ptx"
	"pegasus/cuda"
)

// binaryVersion is what functions say that they were compiled for.
const binaryVersion = 10*capabilityMajor + capabilityMinor

// layoutFunction describes a kernel, with values as cuFuncGetAttribute wants them.
func layoutFunction(m *ptx.Module, f *ptx.Func) cuda.FunctionLayout {
	l := cuda.FunctionLayout{
		Name:          f.Name,
		ParamBytes:    uint32(f.ParamBytes),
		MaxThreads:    maxThreads(f),
		StaticShared:  int32(f.StaticShared),
		ConstBytes:    int32(f.ConstBytes),
		LocalBytes:    int32(f.LocalBytes),
		Registers:     int32(min(max(f.NumRegs, 8), maxRegisters)),
		PTXVersion:    int32(10*m.Version[0] + m.Version[1]),
		BinaryVersion: binaryVersion,
	}
	l.MaxDynamicShared = max(maxShared-l.StaticShared, 0)
	for _, p := range f.Params {
		l.Params = append(l.Params, cuda.ParamLayout{Offset: uint32(p.Offset), Size: uint32(p.Size)})
	}
	return l
}

// maxThreads is how many threads a block of the kernel may have.
func maxThreads(f *ptx.Func) int32 {
	n := uint32(maxBlockThreads)
	for _, d := range [][3]uint32{f.MaxNTid, f.ReqNTid} {
		if d[0] != 0 {
			n = min(n, side(d[0])*side(d[1])*side(d[2]))
		}
	}
	return int32(n)
}

// side is one dimension of a block, made small enough to multiply; 0 stands for 1.
func side(n uint32) uint32 { return min(max(n, 1), maxBlockThreads) }
