package policies

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"pegasus/vcpu"
)

// Specification is TimeGraph's list of promises to domains, by name. It is an import format; see
// ParseSpecification.
type Specification []Entry

// Entry is a line of a Specification.
type Entry struct {
	Line    int // from 1 on
	Name    string
	Promise vcpu.Promise
	// Foreground is set if the entry's priority was *: among domains of the same priority the interactive one
	// goes first. The embedder sets Promise.Interactive.
	Foreground bool
}

// The limits of an entry's numbers.
const (
	mostPriority = 1_000_000
	leastPeriod  = time.Millisecond
	mostPeriod   = 10 * time.Second
)

// SpecificationError is a fault in a line.
type SpecificationError struct {
	Line    int    // from 1 on
	Field   string // name, sched, resv, prio, C or T; "entry": the whole entry
	Value   string
	Allowed string // the allowed values
}

func (e *SpecificationError) Error() string {
	return fmt.Sprintf("line %d: %s is %q; %s", e.Line, e.Field, e.Value, e.Allowed)
}

// ParseSpecification reads entries, one per line:
//
//	<name:sched:resv:prio:C:T>
//
//	sched  PRT: requests one by one; HT: one after the other without asking
//	resv   none, PE or AE; PE@group or AE@group: a reserve that all of that name share
//	prio   the larger the more urgent; *: 0, and the foreground first
//	C, T   the reserve's cost and period in µs; with none they are ignored
//
// Empty lines and text after a # are skipped. A faulty line promises nothing and is reported with its line
// number; the others count.
func ParseSpecification(text string) (Specification, []*SpecificationError) {
	var s Specification
	var errs []*SpecificationError
	shared := make(map[string]Entry)
	line := 0
	for text := range strings.Lines(text) {
		line++
		text, _, _ = strings.Cut(text, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		e, err := parseEntry(line, text)
		if err == nil {
			err = e.agrees(shared)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s = append(s, e)
	}
	return s, errs
}

// Promise returns the promise of the first entry of that name; without one the domain is in the background.
func (s Specification) Promise(name string) vcpu.Promise {
	for _, e := range s {
		if e.Name == name {
			return e.Promise
		}
	}
	return vcpu.Promise{Reserve: vcpu.Reserve{Kind: vcpu.Background}}
}

func parseEntry(line int, text string) (Entry, *SpecificationError) {
	e := Entry{Line: line}
	inner, opens := strings.CutPrefix(text, "<")
	inner, closes := strings.CutSuffix(inner, ">")
	fields := strings.Split(inner, ":")
	if !opens || !closes || len(fields) != 6 {
		return e, e.wrong("entry", text, "it must be <name:sched:resv:prio:C:T>")
	}
	for i, f := range fields {
		fields[i] = strings.TrimSpace(f)
	}
	if e.Name = fields[0]; e.Name == "" {
		return e, e.wrong("name", e.Name, "a domain's name is needed")
	}
	for _, parse := range []func([]string) *SpecificationError{e.sched, e.priority, e.reserve} {
		if err := parse(fields); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (e *Entry) wrong(field, value, allowed string) *SpecificationError {
	return &SpecificationError{Line: e.Line, Field: field, Value: value, Allowed: allowed}
}

func (e *Entry) sched(fields []string) *SpecificationError {
	switch fields[1] {
	case "PRT":
	case "HT":
		e.Promise.Throughput = true
	default:
		return e.wrong("sched", fields[1], "PRT and HT are allowed")
	}
	return nil
}

func (e *Entry) priority(fields []string) *SpecificationError {
	if fields[3] == "*" {
		e.Foreground = true
		return nil
	}
	n, err := strconv.Atoi(fields[3])
	if err != nil || n < -mostPriority || n > mostPriority {
		return e.wrong("prio", fields[3], fmt.Sprintf("* and the numbers from %d to %d are allowed", -mostPriority, mostPriority))
	}
	e.Promise.Priority = n
	return nil
}

func (e *Entry) reserve(fields []string) *SpecificationError {
	r := &e.Promise.Reserve
	kind, group, shared := strings.Cut(fields[2], "@")
	switch {
	case fields[2] == "none":
		return nil
	case kind == "PE":
		r.Kind = vcpu.Posterior
	case kind == "AE":
		r.Kind = vcpu.Apriori
	}
	if r.Kind == vcpu.NoReserve || shared && group == "" {
		return e.wrong("resv", fields[2], "none, PE, AE, PE@group and AE@group are allowed")
	}
	if e.Promise.Throughput {
		return e.wrong("resv", fields[2], "HT allows none: a reserve is looked at before each request")
	}
	var err *SpecificationError
	if r.Period, err = e.micros("T", fields[5], leastPeriod, mostPeriod); err != nil {
		return err
	}
	if r.Cost, err = e.micros("C", fields[4], time.Microsecond, r.Period); err != nil {
		return err
	}
	r.Shared = group
	return nil
}

// micros parses a number of microseconds.
func (e *Entry) micros(field, value string, least, most time.Duration) (time.Duration, *SpecificationError) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least.Microseconds() || n > most.Microseconds() {
		return 0, e.wrong(field, value, fmt.Sprintf("%d to %d µs are allowed", least.Microseconds(), most.Microseconds()))
	}
	return time.Duration(n) * time.Microsecond, nil
}

// agrees returns an error if the entry's shared reserve differs in another entry.
func (e *Entry) agrees(shared map[string]Entry) *SpecificationError {
	r := e.Promise.Reserve
	if r.Shared == "" {
		return nil
	}
	first, known := shared[r.Shared]
	if !known {
		shared[r.Shared] = *e
		return nil
	}
	if f := first.Promise.Reserve; f != r {
		kind := map[vcpu.ReserveKind]string{vcpu.Posterior: "PE", vcpu.Apriori: "AE"}
		return e.wrong("resv", kind[r.Kind]+"@"+r.Shared, fmt.Sprintf("line %d has this reserve as %s with %d of %d µs, and so must all that share it",
			first.Line, kind[f.Kind], f.Cost.Microseconds(), f.Period.Microseconds()))
	}
	return nil
}
