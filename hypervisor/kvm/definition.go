package kvm

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pegasus/callbuf/bell"
	"pegasus/vcpu"
)

// A Definition is a machine's XML definition from libvirt, with the parts that matter here parsed. It is edited as
// text: unknown parts stay unchanged.
type Definition struct {
	Name string
	text []byte

	kind, arch, machine string // the hypervisor, and the kind of machine
	acpi                bool
	sealed              bool // its memory is encrypted against the host

	name, cpu, numa, devices, metadata span

	memory    quantity
	current   quantity // the part of memory that the balloon leaves the machine
	maxMemory quantity
	slots     int
	vcpus     int
	cells     uint64 // bytes of memory in its NUMA cells
	all       []device
	record    *record
	squatter  string // metadata in our namespace that isn't our record
}

// span is an element's place in the text: the whole element, and the text between its tags. end is 0 if the element
// is missing.
type span struct{ start, inner, innerEnd, end int }

func (s span) there() bool { return s.end != 0 }

// closed reports whether it is a single tag, such as <devices/>.
func (s span) closed() bool { return s.inner == s.end }

// quantity is an element that holds a number of bytes.
type quantity struct {
	span
	bytes, unit uint64
}

// device is a device of a machine.
type device struct {
	span
	tag, model  string
	kind, index string // of a controller
	alias       string
	on          []string // the controllers it is plugged into
	port        string   // of a channel: its name in the machine
	path        string   // of a memory device: its file; of a channel: its socket
	mode        string   // of a channel: bind, or connect
	name        string   // of shared memory: the name of its file
	bytes       uint64   // and its size
}

// controls returns a controller's name as the devices plugged into it refer to it.
func (d *device) controls() string {
	if d.tag != "controller" {
		return ""
	}
	return d.kind + " " + d.index
}

// slotted reports whether the device takes one of the machine's memory slots.
func (d *device) slotted() bool {
	return d.tag == "memory" && (d.model == "dimm" || d.model == "nvdimm")
}

// Parse parses a definition.
func Parse(text []byte) (*Definition, error) {
	d := &Definition{text: text}
	err := d.read()
	if err == nil && (d.Name == "" || !d.devices.there() || !d.memory.there()) {
		err = errors.New("it has no name, memory or devices")
	}
	if err != nil {
		return nil, fmt.Errorf("not a machine's definition: %w", err)
	}
	return d, nil
}

// Is reports whether the definition is the same as a text.
func (d *Definition) Is(text []byte) bool { return bytes.Equal(d.text, text) }

// Region returns the machine's region in a directory, if it has one.
func (d *Definition) Region(dir string) (path string, bytes uint64, ok bool) {
	for i := range d.all {
		if path, ok := d.all[i].region(dir); ok {
			return path, d.all[i].bytes, true
		}
	}
	return "", 0, false
}

// region returns the file of a device that is a region in a directory. A PCI device of shared memory has an alias of
// ours in every release: without it, the device is the operator's, whatever the memory's name.
func (d *device) region(dir string) (path string, ok bool) {
	switch {
	case d.tag == "memory" && d.model == "nvdimm":
		return d.path, filepath.Dir(d.path) == filepath.Clean(dir)
	case d.tag == "shmem" && d.model == "ivshmem-plain" && strings.HasPrefix(d.alias, ours+"-"):
		return regionNamed(d.name, dir)
	}
	return "", false
}

// Credits returns the credits of the accelerator that the definition requests; 0: none.
func (d *Definition) Credits() vcpu.Credits {
	if d.record == nil {
		return 0
	}
	return d.record.credits
}

// fits returns an error if a machine can't have a region of that kind.
func (d *Definition) fits(as Device) error {
	switch {
	case d.kind != "kvm" && d.kind != "qemu":
		return fmt.Errorf("machine %q is one of %q: only machines of QEMU, types kvm and qemu, can have a region", d.Name, d.kind)
	case d.arch != "" && d.arch != "x86_64":
		return fmt.Errorf("machine %q is an %s: only x86_64 is supported", d.Name, d.arch)
	case strings.HasPrefix(d.machine, "microvm"), strings.HasPrefix(d.machine, "isapc"):
		return fmt.Errorf("machine %q is a %s, which has no NVDIMMs and no PCI: use machine='q35' or 'pc'", d.Name, d.machine)
	case slices.ContainsFunc(d.all, func(v device) bool { return v.tag == "channel" && v.port == bell.Name && !d.ours(&v) }):
		return fmt.Errorf("machine %q has a channel %s of its own, and can't have two: remove it (virsh edit), attaching brings one", d.Name, bell.Name)
	case d.squatter != "":
		return fmt.Errorf("machine %q has metadata <%s> of the name space %s, of which libvirt keeps one element: remove it (virsh edit)", d.Name, d.squatter, recordSpace)
	case d.sealed:
		return fmt.Errorf("machine %q has <launchSecurity>: its memory is encrypted, and the host can't share any", d.Name)
	case as == IVSHMEM:
		return nil
	case slices.ContainsFunc(old, func(m string) bool { return strings.HasPrefix(d.machine, m) }):
		return fmt.Errorf("machine %q is a %s, whose memory has no slots: use one from pc-i440fx-2.1 on", d.Name, d.machine)
	case !d.acpi:
		return fmt.Errorf("machine %q has no ACPI, by which it would find its region: add <features><acpi/></features>", d.Name)
	case d.taken() >= maxSlots:
		return fmt.Errorf("machine %q has no slot for memory left, of %d: remove a memory device", d.Name, maxSlots)
	}
	return nil
}

// old are the prefixes of the QEMU machine types without memory slots.
var old = []string{"pc-i440fx-1.", "pc-i440fx-2.0", "pc-0.", "pc-1."}

// maxSlots is QEMU's maximum of memory slots.
const maxSlots = 256

// taken returns the number of used memory slots.
func (d *Definition) taken() (n int) {
	for i := range d.all {
		if d.all[i].slotted() {
			n++
		}
	}
	return n
}

// plain returns XML without white space and with single quotes, for comparisons.
func plain(text []byte) string {
	return strings.Join(strings.Fields(string(bytes.ReplaceAll(text, []byte{'"'}, []byte{'\''}))), "")
}
