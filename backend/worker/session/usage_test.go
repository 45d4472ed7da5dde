package session

import (
	"math"
	"testing"

	"pegasus/backend/gate"
	"pegasus/backend/worker/workertest"
	"pegasus/cuda"
)

func TestDomainUsage(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.page.SetQuota(gate.DeviceMemory, 12345)
	ask := func() (u cuda.DomainUsage) {
		t.Helper()
		data := b.want(0, cuda.OpDomainUsage, 0, 0, &cuda.DomainUsageArgs{ArenaOffset: 512, Capacity: 1024})
		if !u.Decode(b.g.Arena()[512 : 512+le.Uint64(data)]) {
			t.Fatal("no usage")
		}
		return u
	}
	if u := ask(); u.MemoryUsed != 0 || u.MemoryQuota != 12345 || u.Now == 0 {
		t.Errorf("%+v before anything was used", u)
	}
	b.context(1) // with a word of memory
	if u := ask(); u.MemoryUsed != 8 {
		t.Errorf("%+v, where 8 bytes are used", u)
	}
	b.want(cuda.ErrorInvalidValue, cuda.OpDomainUsage, 0, 0, &cuda.DomainUsageArgs{ArenaOffset: 512, Capacity: 8})
	b.want(cuda.ErrorInvalidValue, cuda.OpDomainUsage, 0, 0, &cuda.DomainUsageArgs{ArenaOffset: math.MaxUint64 - 4, Capacity: 16})
}
