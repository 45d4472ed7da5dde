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

// A Definition is a machine as libvirt has it in XML, with what of it matters to us. It
// is changed as text: all that we don't understand stays as it is.
type Definition struct {
	Name string
	text []byte

	kind, arch, machine string // who runs it, what it is like
	acpi                bool
	sealed              bool // its memory is encrypted against the host

	name, cpu, numa, devices, metadata span

	memory    quantity
	current   quantity // of it, as the balloon leaves the machine
	maxMemory quantity
	slots     int
	vcpus     int
	cells     uint64 // bytes of memory that its NUMA cells have
	all       []device
	record    *record
	squatter  string // metadata in our name space that isn't our record
}

// span is an element's place in the text; the whole of it, and what is between its tags.
// end is 0 if there is no such element.
type span struct{ start, inner, innerEnd, end int }

func (s span) there() bool { return s.end != 0 }

// closed says whether it is a single tag, such as <devices/>.
func (s span) closed() bool { return s.inner == s.end }

// quantity is an element that holds so many bytes.
type quantity struct {
	span
	bytes, unit uint64
}

// device is one of a machine's.
type device struct {
	span
	tag, model  string
	kind, index string // of a controller
	alias       string
	on          []string // the controllers that it is plugged into
	port        string   // of a channel: its name in the machine
	path        string   // of a memory device: its file
	name        string   // of shared memory: what its file is called
	bytes       uint64   // and its size
}

// controls names a controller as those name it that are plugged into it.
func (d *device) controls() string {
	if d.tag != "controller" {
		return ""
	}
	return d.kind + " " + d.index
}

// slotted says whether it takes one of the machine's slots for memory.
func (d *device) slotted() bool {
	return d.tag == "memory" && (d.model == "dimm" || d.model == "nvdimm")
}

// Parse reads a definition.
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

// Is says whether it is the same as a text.
func (d *Definition) Is(text []byte) bool { return bytes.Equal(d.text, text) }

// Region is the machine's region in a directory, if it has one.
func (d *Definition) Region(dir string) (path string, bytes uint64, ok bool) {
	for i := range d.all {
		if path, ok := d.all[i].region(dir); ok {
			return path, d.all[i].bytes, true
		}
	}
	return "", 0, false
}

// region is the file of a device that is a region in a directory.
func (d *device) region(dir string) (path string, ok bool) {
	switch {
	case d.tag == "memory" && d.model == "nvdimm":
		return d.path, filepath.Dir(d.path) == filepath.Clean(dir)
	case d.tag == "shmem" && d.model == "ivshmem-plain":
		return regionNamed(d.name, dir)
	}
	return "", false
}

// Credits are those of the accelerator that it asks for; 0: none.
func (d *Definition) Credits() vcpu.Credits {
	if d.record == nil {
		return 0
	}
	return d.record.credits
}

// fits says why a machine can't have a region of that kind.
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

// old begins the names of QEMU's machines that have no slots for memory.
var old = []string{"pc-i440fx-1.", "pc-i440fx-2.0", "pc-0.", "pc-1."}

// maxSlots is how many slots QEMU gives a machine.
const maxSlots = 256

// taken is how many slots for memory are used.
func (d *Definition) taken() (n int) {
	for i := range d.all {
		if d.all[i].slotted() {
			n++
		}
	}
	return n
}

// plain is XML without what doesn't matter between elements.
func plain(text []byte) string {
	return strings.Join(strings.Fields(string(bytes.ReplaceAll(text, []byte{'"'}, []byte{'\''}))), "")
}
