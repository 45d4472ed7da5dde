package session

import (
	"hash/fnv"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/cuda"
)

// Work in flight is bounded by its predicted time, estimated from the time of earlier work of the same kind in
// proportion to its size.

// firstGuess is the prediction for work of a new kind.
const firstGuess = 1_000_000 // ns

// kernelCost is the recent time of a block of a kernel, in 1/1024 ns.
type kernelCost struct {
	perBlock atomic.Int64
	identity uint64 // equal for kernels of the same name in modules of the same size
	name     string
}

// identity returns a hash of a kernel's name.
func identity(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

func (k *kernelCost) predict(blocks uint64) int64 {
	per := k.perBlock.Load()
	if per == 0 {
		return firstGuess
	}
	return scale(per, blocks)
}

func (k *kernelCost) learn(blocks uint64, ns int64) { learn(&k.perBlock, blocks, ns) }

// costs are the recent times of a byte of a copy, in 1/1024 ns: in, out, within the device.
type costs struct{ perByte [3]atomic.Int64 }

// engines are the engines that copies of each direction hold.
var engines = [3]accel.Class{accel.CopyIn, accel.CopyOut, accel.CopyDevice}

func direction(dst, src uint32) int {
	host := func(kind uint32) bool { return kind == cuda.EndArena || kind == cuda.EndInline }
	switch {
	case host(src):
		return 0
	case host(dst):
		return 1
	}
	return 2
}

// copyOverhead is the time of a copy apart from its bytes.
const copyOverhead = 2000 // ns

func (k *costs) predictCopy(dst, src uint32, bytes uint64) int64 {
	per := k.perByte[direction(dst, src)].Load()
	if per == 0 {
		per = 256 // 4 GB/s
	}
	return copyOverhead + scale(per, bytes)
}

func (k *costs) learnCopy(dst, src uint32, bytes uint64, ns int64) {
	learn(&k.perByte[direction(dst, src)], bytes, ns-copyOverhead)
}

const maxPredicted = 1 << 40 // about 18 minutes

func scale(per int64, n uint64) int64 {
	if n > maxPredicted || per > maxPredicted<<10/int64(max(n, 1)) {
		return maxPredicted
	}
	return max(per*int64(n)>>10, 1)
}

// learn moves a running mean by a quarter of the difference. Concurrent updates may overwrite each other: the mean is
// an estimate.
func learn(mean *atomic.Int64, n uint64, ns int64) {
	if n == 0 || ns <= 0 {
		return
	}
	now := max(int64(min(uint64(ns), maxPredicted)<<10/n), 1)
	old := mean.Load()
	if old != 0 {
		now = max(old+(now-old)/4, 1)
	}
	mean.Store(now)
}
