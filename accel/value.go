package accel

// Condition is the condition that a stream memory wait ends on (CUstreamWaitValue_flags).
type Condition uint32

const (
	AtLeast Condition = iota // int(word - value) >= 0
	Equal                    // word == value
	AnyBit                   // word & value != 0
	NorBit                   // ^(word | value) != 0
)

// Holds reports whether a word of the given bits meets the condition.
func (c Condition) Holds(word, value uint64, bits int) bool {
	unused := 64 - bits
	switch c {
	case AtLeast:
		return int64((word-value)<<unused) >= 0
	case Equal:
		return (word^value)<<unused == 0
	case AnyBit:
		return (word&value)<<unused != 0
	case NorBit:
		return ^(word|value)<<unused != 0
	}
	return false
}

// WaitValue holds back later work of the stream until the word at an address, of 4 or 8 bytes and aligned to that,
// meets a condition. The word may be written by a kernel, a copy, the guest in shared memory, or another process.
type WaitValue struct {
	Address, Value uint64
	Bytes          uint32
	Condition      Condition
}

// WriteValue writes such a word in one atomic store, in the stream's order.
type WriteValue struct {
	Address, Value uint64
	Bytes          uint32
}

func (WaitValue) work()  {}
func (WriteValue) work() {}
