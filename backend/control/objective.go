package control

import "time"

// The states of an objective.
const (
	ObjectiveNone     = "none"     // the domain has none
	ObjectiveIdle     = "idle"     // too little work in the window to judge
	ObjectiveKept     = "kept"     // the measured value reaches the target
	ObjectiveViolated = "violated" // it misses the target although the domain had work
)

// Objective has a domain's objectives and the worst of their states.
type Objective struct {
	State      string           `json:"state"` // none, idle, kept, violated
	Objectives []ObjectiveState `json:"objectives,omitempty"`
}

// ObjectiveState is the state of one objective. Target and Measured are a part from 0 to 1 for share, ns for wait_p99,
// and calls per second for rate.
type ObjectiveState struct {
	Name     string    `json:"name"`      // share, wait_p99, rate
	State    string    `json:"state"`     // idle, kept, violated
	Since    time.Time `json:"since"`     // of the state
	Target   float64   `json:"target"`    // least share or rate, longest wait
	Measured float64   `json:"measured"`  // over the window; as last measured if the state is idle
	Window   int64     `json:"window_ns"` // over which it is measured
	Kept     float64   `json:"kept"`      // part of the judged time of the last hour in which it was kept, 0 to 1
	Judged   int64     `json:"judged_ns"` // time of the last hour in which it was kept or violated
	Causes   []string  `json:"causes,omitempty"`
}
