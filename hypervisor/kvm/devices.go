package kvm

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pegasus/callbuf/bell"
)

// ours is the prefix, before a dash, of the aliases of the devices that attaching adds: libvirt leaves aliases that
// begin with ua- to its users, and another user may have chosen the same.
const ours = "ua-pegasus"

// ours reports whether attaching added a device: its alias has the prefix, its kind is one that attaching adds, and
// it wasn't there before. A release without a record added only channels, and NVDIMMs of the machine's name.
func (d *Definition) ours(v *device) bool {
	if !strings.HasPrefix(v.alias, ours+"-") || d.record != nil && slices.Contains(d.record.theirs, v.alias) {
		return false
	}
	switch v.tag {
	case "channel":
		return v.port == bell.Name
	case "memory":
		return v.model == "nvdimm" && (d.record != nil || filepath.Base(v.path) == d.Name)
	case "shmem", "controller":
		return d.record != nil
	}
	return false
}

// theirs returns the aliases with our prefix of devices that aren't ours.
func (d *Definition) theirs() (aliases []string) {
	for i := range d.all {
		if v := &d.all[i]; strings.HasPrefix(v.alias, ours+"-") && !d.ours(v) {
			aliases = append(aliases, v.alias)
		}
	}
	return aliases
}

// alias returns an unused alias for a device of ours.
func (d *Definition) alias(what string) string {
	name := ours + "-" + what
	for n := 2; slices.ContainsFunc(d.all, func(v device) bool { return v.alias == name }); n++ {
		name = fmt.Sprintf("%s-%s-%d", ours, what, n)
	}
	return name
}

// Device is the kind of device of a machine's region.
type Device string

const (
	// NVDIMM is persistent memory, on which the machine has a file system: it isolates its processes.
	NVDIMM Device = "nvdimm"
	// IVSHMEM is a PCI device: simple, and can be plugged into a running machine, but a process with access to a part
	// of it has access to all.
	IVSHMEM Device = "ivshmem"
)

// RegionDir returns the directory of the machine's region, if attaching added that; else "".
func (d *Definition) RegionDir() string {
	for i := range d.all {
		if v := &d.all[i]; v.tag == "memory" && d.ours(v) {
			return filepath.Dir(v.path)
		}
	}
	return ""
}

// newDevices returns the devices of an attached machine. Each has an alias of ours.
func (d *Definition) newDevices(a Attachment) []string {
	port := channel(a, d.alias("port"))
	if a.Device == IVSHMEM {
		return []string{port, ivshmem(a, d.alias("region"))}
	}
	return []string{port, nvdimm(a.Region, a.Bytes, d.alias("region"))}
}

// broughtDevices is the length of newDevices.
const broughtDevices = 2

// Plugs returns the devices that give a running machine its region. Its port needs an existing controller: libvirt
// doesn't plug one in.
func (d *Definition) Plugs(a Attachment) []string {
	if slices.ContainsFunc(d.all, func(c device) bool { return c.tag == "controller" && c.kind == "virtio-serial" }) {
		return d.newDevices(a)
	}
	return []string{ivshmem(a, d.alias("region"))}
}

// Plugged returns the aliases of the devices that detaching unplugs from a running machine, except controllers. An
// NVDIMM can't be unplugged.
func (d *Definition) Plugged(dir string) (aliases []string) {
	for _, v := range d.leaving(dir) {
		if v.tag != "controller" && v.tag != "memory" && v.alias != "" {
			aliases = append(aliases, v.alias)
		}
	}
	return aliases
}

// ivshmem returns the device as the master of its memory: else the machine couldn't be saved.
func ivshmem(a Attachment, alias string) string {
	return fmt.Sprintf(`<shmem name='%s' role='master'>
      <model type='ivshmem-plain'/>
      <size unit='M'>%d</size>
      <alias name='%s'/>
    </shmem>`, escape(sharedName(a.Region)), a.Bytes>>20, alias)
}

func nvdimm(path string, bytes uint64, alias string) string {
	return fmt.Sprintf(`<memory model='nvdimm' access='shared'>
      <source>
        <path>%s</path>
      </source>
      <target>
        <size unit='KiB'>%d</size>
        <node>0</node>
      </target>
      <alias name='%s'/>
    </memory>`, escape(path), bytes>>10, alias)
}

func escape(s string) string {
	var b bytes.Buffer
	xml.EscapeText(&b, []byte(s))
	return b.String()
}

// Added returns the definition with an alias of ours for each controller that libvirt added for our devices: those
// missing before. The text is unchanged if there is none.
func (d *Definition) Added(before *Definition) []byte {
	var edits []edit
	for i := range d.all {
		c := &d.all[i]
		was := slices.ContainsFunc(before.all, func(o device) bool { return o.tag == "controller" && o.controls() == c.controls() && !before.ours(&o) })
		if c.tag != "controller" || was || c.alias != "" {
			continue
		}
		alias := fmt.Sprintf("\n      <alias name='%s'/>", d.alias(c.kind+"-"+c.index))
		if c.closed() {
			edits = append(edits, edit{c.end - 2, c.end, ">" + alias + "\n    </controller>"})
		} else {
			edits = append(edits, edit{c.inner, c.inner, alias})
		}
	}
	return apply(d.text, edits)
}

// leaving returns the devices that detaching removes: the regions in a directory and the devices added with them. A
// controller stays if another device is plugged into it by now.
func (d *Definition) leaving(dir string) []*device {
	var gone []*device
	for i := range d.all {
		v := &d.all[i]
		if _, is := v.region(dir); is || d.ours(v) && v.tag != "controller" {
			gone = append(gone, v)
		}
	}
	for more := true; more; {
		more = false
		for i := range d.all {
			c := &d.all[i]
			if c.tag == "controller" && d.ours(c) && !slices.Contains(gone, c) && !d.used(c, gone) {
				gone, more = append(gone, c), true
			}
		}
	}
	return gone
}

// used reports whether a device other than the removed ones is plugged into a controller.
func (d *Definition) used(c *device, gone []*device) bool {
	for i := range d.all {
		if v := &d.all[i]; !slices.Contains(gone, v) && slices.Contains(v.on, c.controls()) {
			return true
		}
	}
	return false
}
