package accel

// Condition is what a stream waits for (CUstreamWaitValue_flags).
type Condition uint32

const (
	AtLeast Condition = iota // int(word - value) >= 0
	Equal                    // word == value
	AnyBit                   // word & value != 0
	NorBit                   // ^(word | value) != 0
)

// Holds says whether a word of so many bits meets the condition.
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

// WaitValue holds back later work of the stream until the word at an address, of 4 or 8
// bytes and aligned to that, meets a condition. Who writes it may be anything: a
// kernel, a copy, the guest in shared memory, another process.
type WaitValue struct {
	Address, Value uint64
	Bytes          uint32
	Condition      Condition
}

// WriteValue writes such a word at once, as others see it, in the stream's order.
type WriteValue struct {
	Address, Value uint64
	Bytes          uint32
}

func (WaitValue) work()  {}
func (WriteValue) work() {}

// Valuer is the optional ability of a Device to carry out WaitValue and WriteValue.
type Valuer interface {
	// HasValues says for which conditions and widths: 32, or also 64, bits; NorBit or not.
	HasValues() (bits int, nor bool)
}
