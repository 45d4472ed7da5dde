package kvm

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pegasus/vcpu"
)

// record is the record in a definition's metadata: the credits that the machine requests, and the changes of
// attaching, so that detaching can undo them.
type record struct {
	span
	credits vcpu.Credits

	made   []string // elements that were missing
	opened []string // elements that were a single tag
	theirs []string // aliases of devices with our prefix that aren't ours
	memory uint64   // bytes without the region
	taken  uint64   // memory slots used without the region
	limit  string   // the machine's <maxMemory> before it was changed, if it had one
	// Our changes of it and of its NUMA cells: if they were edited since, the edit stays.
	newLimit, newNuma string
}

// recordSpace is the namespace of our metadata.
const recordSpace = "urn:pegasus:machine"

// inOurSpace reports whether the innermost open element is of our namespace. The prefix, or the default namespace of
// an element without one, may be declared in any open element, since libvirt declares it only once.
func inOurSpace(open []*element) bool {
	declares := xml.Name{Local: "xmlns"}
	if prefix, _, ok := strings.Cut(open[len(open)-1].name, ":"); ok {
		declares = xml.Name{Space: "xmlns", Local: prefix}
	}
	for _, e := range slices.Backward(open) {
		for _, a := range e.attributes {
			if a.Name == declares {
				return a.Value == recordSpace
			}
		}
	}
	return false
}

func readRecord(e *element) (*record, error) {
	r := &record{span: e.span, made: strings.Fields(e.attribute("made")), opened: strings.Fields(e.attribute("opened")), theirs: strings.Fields(e.attribute("theirs")),
		limit: e.attribute("limit"), newLimit: e.attribute("new-limit"), newNuma: e.attribute("new-numa")}
	for _, n := range []struct {
		name string
		most uint64
		set  func(uint64)
	}{
		{"credits", 1<<16 - 1, func(n uint64) { r.credits = vcpu.Credits(n) }},
		{"memory", 1 << 62, func(n uint64) { r.memory = n }},
		{"taken", maxSlots, func(n uint64) { r.taken = n }},
	} {
		text := e.attribute(n.name)
		if text == "" {
			continue
		}
		v, err := strconv.ParseUint(text, 10, 63)
		if err != nil || v > n.most {
			return nil, fmt.Errorf("%s: %s = %q: want a number to %d; remove that element from the metadata (virsh edit), and attach the machine again", e.name, n.name, text, n.most)
		}
		n.set(v)
	}
	return r, nil
}

func (r *record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<pegasus:machine xmlns:pegasus='%s'", recordSpace)
	attribute := func(name, value string) {
		if value != "" && value != "0" {
			fmt.Fprintf(&b, " %s='%s'", name, escape(value))
		}
	}
	attribute("credits", strconv.FormatUint(uint64(r.credits), 10))
	attribute("memory", strconv.FormatUint(r.memory, 10))
	attribute("taken", strconv.FormatUint(r.taken, 10))
	attribute("made", strings.Join(r.made, " "))
	attribute("opened", strings.Join(r.opened, " "))
	attribute("theirs", strings.Join(r.theirs, " "))
	attribute("limit", r.limit)
	attribute("new-limit", r.newLimit)
	attribute("new-numa", r.newNuma)
	b.WriteString("/>")
	return b.String()
}
