package kvm

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"pegasus/vcpu"
)

// edit replaces a part of the text.
type edit struct {
	from, to int
	text     string
}

func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Or(cmp.Compare(b.from, a.from), cmp.Compare(b.to, a.to)) })
	for _, e := range edits {
		text = slices.Concat(text[:e.from], []byte(e.text), text[e.to:])
	}
	return text
}

// Attachment describes the region of a machine.
type Attachment struct {
	Region  string // the file
	Bytes   uint64
	Credits vcpu.Credits // of the accelerator; 0: none requested
	Device  Device       // the kind of device
	// Served reports that the hub listens at the port, and QEMU connects: QEMU needs no directory to write to.
	Served bool
}

// Attached returns the machine's attachment in a directory, if it has one.
func (d *Definition) Attached(dir string) (Attachment, bool) {
	for i := range d.all {
		path, ok := d.all[i].region(dir)
		switch {
		case ok && d.all[i].tag == "shmem":
			return Attachment{path, d.all[i].bytes, d.Credits(), IVSHMEM, d.served()}, true
		case ok:
			return Attachment{path, d.all[i].bytes, d.Credits(), NVDIMM, d.served()}, true
		}
	}
	return Attachment{Credits: d.Credits()}, false
}

// served reports whether QEMU connects to the machine's port.
func (d *Definition) served() bool {
	return slices.ContainsFunc(d.all, func(v device) bool { return d.ours(&v) && v.mode == "connect" })
}

// check returns an error for an attachment that is invalid for every machine.
func (a *Attachment) check() error {
	if err := CheckSize(a.Bytes); err != nil {
		return fmt.Errorf("region of %d bytes: %w", a.Bytes, err)
	}
	switch {
	case a.Device != NVDIMM && a.Device != IVSHMEM:
		return fmt.Errorf("device %q: want %s or %s", a.Device, NVDIMM, IVSHMEM)
	case a.Device == IVSHMEM && a.Bytes&(a.Bytes-1) != 0:
		return fmt.Errorf("region of %d bytes: an ivshmem device has a power of two of them, as 256MiB, 512MiB or 1GiB", a.Bytes)
	case a.Device == IVSHMEM && filepath.Dir(filepath.Dir(a.Region)) != sharedDir:
		return fmt.Errorf("region in %s: that of an ivshmem device has to lie in a directory of %s, as %s/pegasus", filepath.Dir(a.Region), sharedDir, sharedDir)
	case len(PortPath(a.Region)) > maxSocketPath:
		return fmt.Errorf("region %s: the path of its port, %s, has %d bytes, and a socket's may have %d: use a shorter --regions, or rename the machine (virsh domrename)", a.Region, PortPath(a.Region), len(PortPath(a.Region)), maxSocketPath)
	}
	return nil
}

// WithRegion returns the definition with a region: the device, and in the metadata a record of the changes. For an
// NVDIMM the machine's memory limit grows by a slot and by the region's addresses, and a machine without NUMA cells
// gets one, since an NVDIMM has to belong to a cell. An existing region in the directory is replaced; the text is the
// same if nothing changes.
func (d *Definition) WithRegion(a Attachment) ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	dir, theirs := filepath.Dir(a.Region), d.theirs()
	if is, ok := d.Attached(dir); ok && is == a && d.complete(a.Region) {
		return d.text, nil
	}
	if len(d.leaving(dir)) > 0 || d.record != nil {
		text, err := d.WithoutRegion(dir)
		if err != nil {
			return nil, err
		}
		if d, err = Parse(text); err != nil {
			return nil, err
		}
	}
	if err := d.fits(a.Device); err != nil {
		return nil, err
	}
	return d.attach(a, theirs), nil
}

// complete reports whether the machine has all that attaching adds now.
func (d *Definition) complete(region string) bool {
	n := 0
	for i := range d.all {
		if v := &d.all[i]; d.ours(v) && v.tag != "controller" && (v.tag != "channel" || v.path == PortPath(region)) {
			n++
		}
	}
	return d.record != nil && n == broughtDevices
}

func (d *Definition) attach(a Attachment, theirs []string) []byte {
	r := &record{theirs: theirs, credits: a.Credits, memory: d.memory.bytes, taken: uint64(d.taken())}
	var edits []edit
	devices := ""
	for _, text := range d.newDevices(a) {
		devices += "\n    " + text
	}
	edits = append(edits, d.into(d.devices, "devices", devices, r))
	if a.Device == NVDIMM {
		edits = d.makeRoom(edits, a.Bytes, r)
		if !d.numa.there() {
			edits = append(edits, d.cell(r))
		}
	}
	if d.metadata.there() {
		if d.metadata.closed() {
			r.opened = append(r.opened, "metadata")
		}
		edits = append(edits, d.into(d.metadata, "metadata", "\n    "+r.String(), &record{}))
	} else {
		r.made = append(r.made, "metadata")
		edits = append(edits, edit{d.name.end, d.name.end, "\n  <metadata>\n    " + r.String() + "\n  </metadata>"})
	}
	return apply(d.text, edits)
}

// into returns the edit that appends text to an element's content.
func (d *Definition) into(s span, name, text string, r *record) edit {
	if s.closed() {
		r.opened = append(r.opened, name)
		return edit{s.end - 2, s.end, ">" + text + "\n  </" + name + ">"}
	}
	at := max(d.behind(s.innerEnd), s.inner)
	return edit{at, at, text}
}

// behind returns the end of the text before a position, without white space.
func (d *Definition) behind(at int) int {
	for at > 0 && (d.text[at-1] == ' ' || d.text[at-1] == '\t' || d.text[at-1] == '\n' || d.text[at-1] == '\r') {
		at--
	}
	return at
}

// makeRoom raises the machine's limit of memory by the needs of the NVDIMM, a slot and as many addresses as it has
// bytes: the machine's own slots and addresses stay for memory of its own. A machine without a limit gets some more
// addresses, for alignment. A machine with all slots of QEMU gives up one of them.
func (d *Definition) makeRoom(edits []edit, size uint64, r *record) []edit {
	const slack = 1 << 30
	slots, most := d.taken()+1, d.memory.bytes+size+slack
	if d.maxMemory.there() {
		slots, most = max(d.slots+1, slots), max(d.maxMemory.bytes, d.memory.bytes)+size
	}
	slots = min(slots, maxSlots)
	text := fmt.Sprintf("<maxMemory slots='%d' unit='KiB'>%d</maxMemory>", slots, (most+1<<10-1)>>10)
	r.newLimit = plain([]byte(text))
	if !d.maxMemory.there() {
		r.made = append(r.made, "maxMemory")
		at := d.behind(d.memory.start)
		return append(edits, edit{at, at, "\n  " + text})
	}
	r.limit = string(d.text[d.maxMemory.start:d.maxMemory.end])
	return append(edits, edit{d.maxMemory.start, d.maxMemory.end, text})
}

// cell puts all of the machine into one NUMA cell.
func (d *Definition) cell(r *record) edit {
	numa := d.oneCell(d.memory.bytes)
	r.newNuma = plain([]byte(numa))
	if !d.cpu.there() {
		r.made = append(r.made, "cpu")
		at := d.behind(d.devices.start)
		return edit{at, at, "\n  <cpu>\n    " + numa + "\n  </cpu>"}
	}
	return d.into(d.cpu, "cpu", "\n    "+numa, r)
}

// oneCell returns a NUMA cell of all vCPUs and the given memory.
func (d *Definition) oneCell(memory uint64) string {
	cpus := "0"
	if d.vcpus > 1 {
		cpus = fmt.Sprintf("0-%d", d.vcpus-1)
	}
	return fmt.Sprintf("<numa>\n      <cell id='0' cpus='%s' memory='%d' unit='KiB'/>\n    </numa>", cpus, memory>>10)
}

// ErrDetached reports that there is no region to remove.
var ErrDetached = errors.New("the machine has no region")

// WithoutRegion returns the definition without its regions in a directory, with the changes of attaching undone,
// except where the definition was edited since.
func (d *Definition) WithoutRegion(dir string) ([]byte, error) {
	gone := d.leaving(dir)
	if len(gone) == 0 && d.record == nil {
		return nil, ErrDetached
	}
	var edits []edit
	var bytes uint64
	slots := 0
	for _, v := range gone {
		if v.slotted() {
			slots++
			bytes += v.bytes
		}
		edits = append(edits, d.without(v.span))
	}
	if d.record == nil { // attached by a release without a record
		return apply(d.text, d.fewerSlots(edits, gone)), nil
	}
	r := d.record
	if slices.Contains(r.opened, "devices") && d.onlySpace(d.devices, edits) {
		edits = append(dropInside(edits, d.devices), edit{d.devices.inner - 1, d.devices.end, "/>"})
	}
	left := d.taken() - slots
	edits = d.restoreLimit(d.restoreMemory(edits, bytes), left)
	if left <= int(r.taken) { // memory put in slots since needs cells
		edits = d.restoreCell(edits, d.withoutMemory(bytes))
	}
	return apply(d.text, d.restoreMetadata(edits)), nil
}

// without returns the edit that removes an element and the white space before it.
func (d *Definition) without(s span) edit { return edit{d.behind(s.start), s.end, ""} }

// onlySpace reports whether edits leave only white space in an element.
func (d *Definition) onlySpace(s span, edits []edit) bool {
	left := s.innerEnd - s.inner
	for at := s.inner; at < s.innerEnd; at++ {
		inEdit := slices.ContainsFunc(edits, func(e edit) bool { return e.text == "" && e.from <= at && at < e.to })
		if c := d.text[at]; inEdit || c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			left--
		}
	}
	return left == 0
}

// dropInside drops the edits inside an element.
func dropInside(edits []edit, s span) []edit {
	return slices.DeleteFunc(edits, func(e edit) bool { return e.from >= s.inner-1 && e.to <= s.end })
}

// fewerSlots removes the slots of removed devices.
func (d *Definition) fewerSlots(edits []edit, gone []*device) []edit {
	n := d.slots
	for _, v := range gone {
		if v.slotted() {
			n--
		}
	}
	if !d.maxMemory.there() || n <= 0 || n == d.slots {
		return edits
	}
	return append(edits, edit{d.maxMemory.start, d.maxMemory.end, fmt.Sprintf("<maxMemory slots='%d' unit='KiB'>%d</maxMemory>", n, d.maxMemory.bytes>>10)})
}

// counted returns the sum of the NUMA cells and the memory devices.
func (d *Definition) counted() uint64 {
	counted := d.cells
	for i := range d.all {
		if v := &d.all[i]; v.tag == "memory" {
			counted += v.bytes
		}
	}
	return counted
}

// BesideCells returns the memory that a machine has, by mistake, and the sum of its NUMA cells and memory devices,
// both without its region in a directory: where the memory was edited, and not the cells. libvirt drops an edit of
// <memory>, as a rule, and keeps one of <currentMemory>, which then has a part of the region. ok reports whether
// there is such a mistake; a machine without cells has none.
func (d *Definition) BesideCells(dir string) (memory, counted uint64, ok bool) {
	counted = d.counted()
	var region uint64
	for i := range d.all {
		if _, is := d.all[i].region(dir); is && d.all[i].tag == "memory" {
			region += d.all[i].bytes
		}
	}
	own := counted - region
	switch {
	case d.cells == 0:
		return 0, 0, false
	case d.memory.bytes != counted && d.memory.bytes != own: // libvirt counts the region or not
		return d.memory.bytes - min(region, d.memory.bytes), own, true
	case d.current.bytes > own:
		return d.current.bytes, own, true
	}
	return 0, 0, false
}

// withoutMemory returns the machine's memory without its region, which libvirt counts as memory of the machine,
// however its cells were edited since.
func (d *Definition) withoutMemory(region uint64) uint64 {
	switch d.memory.bytes {
	case d.record.memory + region, d.counted():
		return d.memory.bytes - min(region, d.memory.bytes)
	}
	return d.memory.bytes
}

// restoreMemory restores the size.
func (d *Definition) restoreMemory(edits []edit, region uint64) []edit {
	left := d.withoutMemory(region)
	if left == d.memory.bytes {
		return edits
	}
	if left%d.memory.unit == 0 { // libvirt's KiB, as a rule
		return append(edits, edit{d.memory.inner, d.memory.innerEnd, strconv.FormatUint(left/d.memory.unit, 10)})
	}
	return append(edits, edit{d.memory.start, d.memory.end, fmt.Sprintf("<memory unit='KiB'>%d</memory>", left>>10)})
}

// restoreLimit restores the machine's limit of memory, if that is enough for the remaining devices.
func (d *Definition) restoreLimit(edits []edit, left int) []edit {
	r := d.record
	var was struct {
		Slots int `xml:"slots,attr"`
	}
	if r.limit != "" && xml.Unmarshal([]byte(r.limit), &was) != nil || left > max(was.Slots, int(r.taken)) {
		return edits
	}
	if r.newLimit == "" || !d.maxMemory.there() || plain(d.text[d.maxMemory.start:d.maxMemory.end]) != r.newLimit {
		return edits
	}
	if slices.Contains(r.made, "maxMemory") {
		return append(edits, d.without(d.maxMemory.span))
	}
	return append(edits, edit{d.maxMemory.start, d.maxMemory.end, r.limit})
}

// restoreCell removes the added NUMA cell, and the elements added for it. libvirt adds later vCPUs of the machine to
// it; an edit of the machine's memory has to change the cell's, too.
func (d *Definition) restoreCell(edits []edit, memory uint64) []edit {
	r := d.record
	if r.newNuma == "" || !d.numa.there() {
		return edits
	}
	if is := plain(d.text[d.numa.start:d.numa.end]); is != r.newNuma && is != plain([]byte(d.oneCell(memory))) {
		return edits
	}
	numa := d.without(d.numa)
	switch empty := d.onlySpace(d.cpu, []edit{numa}); {
	case empty && slices.Contains(r.made, "cpu"):
		return append(edits, d.without(d.cpu))
	case empty && slices.Contains(r.opened, "cpu"):
		return append(edits, edit{d.cpu.inner - 1, d.cpu.end, "/>"})
	}
	return append(edits, numa)
}

// restoreMetadata removes the record.
func (d *Definition) restoreMetadata(edits []edit) []edit {
	r := d.record
	record := d.without(r.span)
	switch empty := d.onlySpace(d.metadata, []edit{record}); {
	case empty && slices.Contains(r.made, "metadata"):
		return append(edits, d.without(d.metadata))
	case empty && slices.Contains(r.opened, "metadata"):
		return append(edits, edit{d.metadata.inner - 1, d.metadata.end, "/>"})
	}
	return append(edits, record)
}
