package ir

// MbarrierState is a barrier in shared memory. It completes a phase when all expected arrivals have come, and all bytes
// of the copies that were announced. Its fields from the lowest bit: 20 bits, the arrivals that a phase expects; 20
// bits, the arrivals pending; 21 bits, a signed count of bytes; one clear bit; one bit that marks an mbarrier; and the
// parity of the current phase.
type MbarrierState uint64

// The fields of an MbarrierState.
const (
	MaxMbarrierCount = 1<<20 - 1 // the largest number of arrivals and of bytes
	pendingShift     = 20
	bytesShift       = 40
	bytesMask        = 1<<21 - 1
	MbarrierValid    = 1 << 62 // the mark
	parityShift      = 63
)

// Valid reports whether the word is an mbarrier.
func (m MbarrierState) Valid() bool { return m&MbarrierValid != 0 }

// Parity returns the parity of the current phase.
func (m MbarrierState) Parity() uint64 { return uint64(m >> parityShift) }

func (m MbarrierState) expected() uint64 { return uint64(m & MaxMbarrierCount) }

// Pending returns the number of arrivals that the phase still awaits.
func (m MbarrierState) Pending() uint64 { return uint64(m >> pendingShift & MaxMbarrierCount) }

// bytes returns the announced bytes that haven't been copied; less than zero if they were copied before the
// announcement.
func (m MbarrierState) bytes() int64 { return int64(m<<(64-21-bytesShift)) >> (64 - 21) }

// With returns the state with the given counts, and the same phase.
func (m MbarrierState) With(expected, pending uint64, bytes int64) MbarrierState {
	return m>>62<<62 | MbarrierState(uint64(bytes)&bytesMask<<bytesShift|pending<<pendingShift|expected)
}

// Arrive records n arrivals, and announced bytes, or with a minus sign completed ones; dropped: the next phases expect
// n arrivals less. It returns false if there are more arrivals than expected, or too many bytes.
func (m MbarrierState) Arrive(n uint64, bytes int64, dropped bool) (MbarrierState, bool) {
	expected, pending, all := m.expected(), m.Pending(), m.bytes()+bytes
	if n > pending || dropped && n > expected || all > MaxMbarrierCount || all < -MaxMbarrierCount {
		return m, false
	}
	pending -= n
	if dropped {
		expected -= n
	}
	if pending == 0 && all == 0 {
		return (m ^ 1<<parityShift).With(expected, expected, 0), true
	}
	return m.With(expected, pending, all), true
}
