package vcpu

import "fmt"

// State is the state of an aVCPU's gate.
type State uint8

const (
	Idle    State = iota // gate closed, no work reported
	Waiting              // gate closed, work pending
	Open                 // gate open
	Closing              // gate closed, submitted work may still be running
)

var stateNames = [...]string{"idle", "waiting", "open", "closing"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// moves holds, for each state, the states that may follow.
var moves = [...][4]bool{
	Idle:    {Waiting: true, Open: true},
	Waiting: {Idle: true, Open: true},
	Open:    {Closing: true},
	Closing: {Idle: true, Waiting: true, Open: true},
}

// Move returns next if s may be followed by it, and panics otherwise: an illegal transition is a bug in the
// scheduler, not in a guest.
func (s State) Move(next State) State {
	if !moves[s][next] {
		panic(fmt.Sprintf("vcpu: illegal move %v → %v", s, next))
	}
	return next
}
