package cuda

//go:generate go run ./gen -root ..

// Op is the number of a wire operation.
type Op uint16

// Class is the class of an operation at the gate and in accounting.
type Class uint8

const (
	ClassControl Class = iota // answered at once
	ClassCopy                 // waits for the gate's copy class
	ClassCompute              // waits for the gate's compute class
	ClassWait                 // answered after an event on the accelerator
	NumClasses
)

var classNames = [NumClasses]string{"control", "copy", "compute", "wait"}

func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return "unknown class"
}

// ReplyPolicy specifies whether callers of an operation wait for a reply.
type ReplyPolicy uint8

const (
	ReplyEither ReplyPolicy = iota // decided by the packet's flag
	ReplyAlways
	ReplyNever // queued: an error is kept by the context
)

type opInfo struct {
	name  string
	class Class
	reply ReplyPolicy
}

// Known reports whether o is an operation of this version.
func (o Op) Known() bool { return o < NumOps && ops[o].name != "" }

func (o Op) String() string {
	if !o.Known() {
		return "unknown operation"
	}
	return ops[o].name
}

// Class returns the operation's class; an unknown one is control.
func (o Op) Class() Class {
	if !o.Known() {
		return ClassControl
	}
	return ops[o].class
}

// Reply returns the operation's reply policy.
func (o Op) Reply() ReplyPolicy {
	if !o.Known() {
		return ReplyEither
	}
	return ops[o].reply
}

func (o Op) wellFormed(reply bool) bool {
	switch o.Reply() {
	case ReplyAlways:
		return reply
	case ReplyNever:
		return !reply
	}
	return true
}

// Call is the fixed part of every operation's packet, in private memory. ReplySlot and ReplyTag are valid
// only if Reply is set.
type Call struct {
	Op        Op
	Reply     bool
	ReplySlot uint16
	ReplyTag  uint32
	Context   uint32
	Stream    uint64
}

// Deferred is the return value of a handler that answers the call itself later. It is never sent.
const Deferred Result = -1

// Endpoint kinds of OpCopy and OpCopyLinear.
const (
	EndDevice = 1 // a device address, or an arena address used as one
	EndArena  = 2 // an offset in the arena
	EndArray  = 3 // an array's id
	EndInline = 4 // the packet's bytes (source), the reply's (destination)
)

// MaxInlineReply is the limit of a copy to EndInline.
const MaxInlineReply = 224

// Ids of the predefined streams.
const (
	StreamNull      = 0
	StreamLegacy    = 1
	StreamPerThread = 2  // never on the wire: guests use a stream of their own per thread
	FirstStream     = 16 // the first that a guest may allocate
)

// LaunchFunction returns the packed function field of OpLaunch.
func LaunchFunction(module uint64, index uint32) uint64 { return module<<32 | uint64(index) }
