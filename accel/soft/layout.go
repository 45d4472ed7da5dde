package soft

import (
	"strconv"
	"strings"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

// binaryVersion is the version that functions report to be compiled for.
const binaryVersion = 10*capabilityMajor + capabilityMinor

// layoutFunction returns the description of a kernel, with the values of cuFuncGetAttribute.
func layoutFunction(f *ptx.Func) cuda.FunctionLayout {
	l := cuda.FunctionLayout{
		Name:          f.Name,
		ParamBytes:    uint32(f.ParamBytes),
		MaxThreads:    min(maxThreads(f), int32(lane.MostThreads(f.LocalBytes))),
		StaticShared:  int32(f.StaticShared),
		ConstBytes:    int32(f.ConstBytes),
		LocalBytes:    int32(f.LocalBytes),
		Registers:     int32(min(max(f.NumRegs, 8), maxRegisters)),
		PTXVersion:    virtualArchitecture(f.Target),
		BinaryVersion: binaryVersion,
		Required:      [3]int32{int32(f.ReqNTid[0]), int32(f.ReqNTid[1]), int32(f.ReqNTid[2])},
	}
	if f.Refusal != nil {
		l.Refusal = f.Refusal.Result
	}
	l.MaxDynamicShared = max(maxShared-l.StaticShared, 0)
	for _, p := range f.Params {
		l.Params = append(l.Params, cuda.ParamLayout{Offset: uint32(p.Offset), Size: uint32(p.Size)})
	}
	return l
}

// virtualArchitecture returns the number of the architecture that a .target names: 90 of sm_90a. Text without a .target is
// for the oldest architecture, sm_10.
func virtualArchitecture(target string) int32 {
	n := strings.TrimRight(strings.TrimPrefix(target, "sm_"), "af")
	v, err := strconv.ParseInt(n, 10, 32)
	if err != nil {
		return 10
	}
	return int32(v)
}

// maxThreads returns how many threads a block of the kernel may have.
func maxThreads(f *ptx.Func) int32 {
	n := uint32(maxBlockThreads)
	for _, d := range [][3]uint32{f.MaxNTid, f.ReqNTid} {
		if d[0] != 0 {
			n = min(n, side(d[0])*side(d[1])*side(d[2]))
		}
	}
	return int32(n)
}

// side returns one dimension of a block, made small enough to multiply; 0 stands for 1.
func side(n uint32) uint32 { return min(max(n, 1), maxBlockThreads) }
