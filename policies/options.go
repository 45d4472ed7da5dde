package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

const ms = time.Millisecond

// Mode is the way in which a window policy keeps its promises.
type Mode uint8

const (
	// Production corrects every overrun and distributes idle time.
	Production Mode = iota
	// Paper follows the published algorithm: whole ticks, without corrections.
	Paper
)

func (m Mode) String() string {
	if m == Paper {
		return "paper"
	}
	return "production"
}

// Accounts is the division of an accelerator's engines into accounts.
type Accounts uint8

const (
	SDQ Accounts = iota // one for all of its engines
	MRQ                 // one for the compute engine, one for the copy engines
)

// Options are the settings of an accelerator's policy: the settings that every policy has, and a value of each
// parameter that some policy has.
type Options struct {
	Mode        Mode
	Accounts    Accounts      // number of accounts of an accelerator
	Tick        time.Duration // window of the domain with the least credits; 0: 30 ms
	RotationCap time.Duration // intended limit of a rotation's length; 0: 1 s
	IdleYield   time.Duration // a window that is idle for this long is given up; 0: never

	Values
}

// Defaults returns the options of a mode.
func Defaults(m Mode) Options {
	o := Options{Mode: m}.filled()
	for _, p := range Params() {
		if !p.bare {
			o.Set(p, p.Default)
		}
	}
	if m == Production {
		o.IdleYield = 2 * time.Millisecond
	}
	return o
}

func (o Options) filled() Options {
	if o.Tick <= 0 {
		o.Tick = 30 * time.Millisecond
	}
	if o.RotationCap <= 0 {
		o.RotationCap = time.Second
	}
	o.RotationCap = max(o.RotationCap, o.Tick)
	return o
}

// check returns an error that names the first option out of its range. It does not check the parameters of
// policies that lend windows or budgets: a measured cost may lie outside of the range that a site may set.
func (o *Options) check() error {
	if o.Accounts > MRQ {
		return fmt.Errorf("accounts is %d; %d (SDQ) and %d (MRQ) are allowed", o.Accounts, SDQ, MRQ)
	}
	for i := range specs {
		if s := &specs[i]; s.Lends == Requests {
			if err := o.Values.check(s.Params); err != nil {
				return err
			}
		}
	}
	return o.Values.check(reserveParams)
}

// memberOrder has the members of the options in a trace in the order in which they were first published; those of other parameters
// follow.
var memberOrder = []string{"Mode", "Tick", "RotationCap", "IdleYield", "DebtAF", "Boost", "MaxSkip", "ByCredits", "Scan", "Wait", "Ahead", "SwitchCost",
	"Accounts", "Order", "Arrival", "Launches", "Period", "Window", "Mean", "HoldBack", "RunRequests", "RunTime", "History",
	"BackgroundCost", "BackgroundPeriod", "ReserveLimit", "Quantum", "Jiffy"}

// MarshalJSON returns the options as an object with a member for each.
func (o Options) MarshalJSON() ([]byte, error) {
	members := map[string]any{"Mode": o.Mode, "Accounts": o.Accounts, "Tick": o.Tick, "RotationCap": o.RotationCap, "IdleYield": o.IdleYield}
	names := slices.Clone(memberOrder)
	for _, p := range Params() {
		n := o.raw[p.index]
		if members[p.Name] = n; p.Kind == Flag {
			members[p.Name] = n != 0
		}
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	var b bytes.Buffer
	for i, name := range names {
		value, err := json.Marshal(members[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%c%q:%s", "{,"[min(i, 1)], name, value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON changes the options that have a member. It ignores members that are no option.
func (o *Options) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for name, value := range members {
		var to any
		switch strings.ToLower(name) {
		case "mode":
			to = &o.Mode
		case "accounts":
			to = &o.Accounts
		case "tick":
			to = &o.Tick
		case "rotationcap":
			to = &o.RotationCap
		case "idleyield":
			to = &o.IdleYield
		default:
			if err := o.unmarshal(Parameter(name), value); err != nil {
				return fmt.Errorf("options: %s: %w", name, err)
			}
			continue
		}
		if err := json.Unmarshal(value, to); err != nil {
			return fmt.Errorf("options: %s: %w", name, err)
		}
	}
	return nil
}

func (o *Options) unmarshal(p *Param, value json.RawMessage) error {
	switch {
	case p == nil:
		return nil
	case p.Kind == Flag:
		var set bool
		err := json.Unmarshal(value, &set)
		if o.raw[p.index] = 0; set {
			o.raw[p.index] = 1
		}
		return err
	}
	return json.Unmarshal(value, &o.raw[p.index])
}
