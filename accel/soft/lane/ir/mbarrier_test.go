package ir

import "testing"

// How arrivals and bytes add up, at the ends of their ranges.
func TestMbarrierCounts(t *testing.T) {
	const most = MaxMbarrierCount
	m := MbarrierState(MbarrierValid).With(most, most, 0)
	for i, s := range []struct {
		n          uint64
		bytes      int64
		drop, ok   bool
		pending    uint64
		left       int64
		parity     uint64
		expectedTo uint64
	}{
		{0, -most, false, true, most, -most, 0, most},
		{0, -1, false, false, most, -most, 0, most},
		{0, 2*most - 1, false, true, most, most - 1, 0, most},
		{most, 1, false, true, 0, most, 0, most},
		{1, 0, false, false, 0, most, 0, most},
		{0, -most, false, true, most, 0, 1, most},
		{most, 0, true, true, 0, 0, 0, 0},
		{1, 0, false, false, 0, 0, 0, 0},
	} {
		after, ok := m.Arrive(s.n, s.bytes, s.drop)
		if ok != s.ok || after.Pending() != s.pending || after.bytes() != s.left || after.Parity() != s.parity || after.expected() != s.expectedTo || !after.Valid() {
			t.Fatalf("step %d: %v, pending %d, bytes %d, parity %d, expected %d", i, ok, after.Pending(), after.bytes(), after.Parity(), after.expected())
		}
		m = after
	}
}
