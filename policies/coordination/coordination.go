// Package coordination measures from a trace how well an accelerator and the CPUs are coordinated: whether
// the chosen domains had a running vCPU, by the hypervisor's record and not by the samples that the policy
// received.
//
// Callers: the pegasus command, with the output of `pegasus trace --cpus`, and tests, with records of a real
// host. The package is pure, and requires of its input only that it is JSON.
//
// Trust boundary: the trace is the user's own file and may be anything.
package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"pegasus/policies"
)

// Line is one line of a trace: a record of a scheduler, or a time during which a vCPU ran.
type Line struct {
	policies.Record
	Run *Run `json:"run,omitempty"`
}

// Run is a time during which a domain's vCPU ran.
type Run struct {
	Domain string        `json:"domain"`
	VCPU   int           `json:"vcpu"`
	CPU    int           `json:"cpu"` // of the host; -1: unknown
	From   policies.Time `json:"from"`
	To     policies.Time `json:"to"`
}

// Read reads a trace. Runs may stand anywhere in it.
func Read(in io.Reader) (all []Line, err error) {
	d := json.NewDecoder(in)
	for n := 1; ; n++ {
		var l Line
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read a trace: line %d: %w", n, err)
		}
		all = append(all, l)
	}
}
