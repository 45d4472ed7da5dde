// Package coordination judges by a trace how well an accelerator and the CPUs went together: whether those
// who were chosen had a vCPU that ran, as the hypervisor says it did, and not as the policy was told.
//
// The pegasus command calls it with what `pegasus trace --cpus` has written, and tests with what a real
// host did. It is pure, and trusts what it reads only to be JSON.
package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"pegasus/policies"
)

// Line is one of a trace: a record of a scheduler, or when a vCPU ran.
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
