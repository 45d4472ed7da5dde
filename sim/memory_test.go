package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

func memoryOf(swap string, sizes ...Bytes) (*memory, []*domain) {
	p := &Profile{Bandwidth: 1e9, Within: 100e9}
	m := newMemory(p, 1000e6, swap)
	var all []*domain
	for i, size := range sizes {
		d := &domain{index: int32(i), spec: &Domain{Memory: size}}
		m.allocate(d)
		all = append(all, d)
	}
	return m, all
}

func TestMemoryWithoutSwapping(t *testing.T) {
	m, all := memoryOf(swapNever, 600e6, 300e6, 200e6)
	if all[0].object == nil || all[1].object == nil || all[2].object != nil {
		t.Fatalf("of 600, 300 and 200 MB on 1000 the first two fit: %v", all)
	}
	m.free(all[0])
	if !m.allocate(all[2]) {
		t.Error("what was freed isn't there for others")
	}
}

// Needed data replaces the least recently used; both directions take time.
func TestSwapToHost(t *testing.T) {
	m, all := memoryOf(swapHost, 500e6, 400e6, 300e6)
	for i, d := range all[:2] {
		if took := m.bring(Time(i), d.object); took != 0 {
			t.Errorf("object %d is there already, and took %v", i, took)
		}
	}
	if took := m.bring(3, all[2].object); took != 400*time.Millisecond { // 200 MB out, 200 MB in
		t.Errorf("took %v", took)
	}
	if got := all[0].object.resident; got != 300e6 {
		t.Errorf("the one that was used first has %d on the device", got)
	}
}

// With an area only the way in takes time, if the area had time to empty.
func TestSwapThroughArea(t *testing.T) {
	m, all := memoryOf(swapArea, 500e6, 350e6, 100e6)
	for i, d := range all[:2] {
		m.bring(Time(i), d.object)
	}
	if took := m.bring(3, all[2].object); took != 50*time.Millisecond+500*time.Microsecond { // 50 MB into the area, 50 MB in
		t.Errorf("took %v", took)
	}
	if took := m.bring(4, all[0].object); took > 2*time.Millisecond { // it is still in the area; 50 MB go there in turn
		t.Errorf("what rests in the area is back after %v", took)
	}
	m.empty(Time(time.Second))
	for _, d := range all {
		if d.object.resting != 0 {
			t.Errorf("after a second %d bytes rest in the area", d.object.resting)
		}
	}
}

// Every byte is in one place, and the device is never overfull.
func TestMemoryInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, swap := range []string{swapHost, swapArea} {
		m, all := memoryOf(swap, 100e6, 300e6, 250e6, 400e6, 60e6, 333e6)
		now := Time(0)
		for range 10000 {
			now = now.Add(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
			d := all[r.IntN(len(all))]
			if r.IntN(20) == 0 {
				m.free(d)
				m.allocate(d)
			}
			m.bring(now, d.object)
			if d.object.resident != d.object.size {
				t.Fatalf("%d of %d bytes are on the device", d.object.resident, d.object.size)
			}
			var resident, resting Bytes
			for _, o := range m.objects {
				if o.resident < 0 || o.resting < 0 || o.resident+o.resting > o.size {
					t.Fatalf("an object of %d has %d on the device and %d in the area", o.size, o.resident, o.resting)
				}
				resident, resting = resident+o.resident, resting+o.resting
			}
			if resident > m.size || resting > m.area {
				t.Fatalf("%d on a device of %d, %d in an area of %d", resident, m.size, resting, m.area)
			}
		}
	}
}
