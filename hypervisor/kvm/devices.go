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

// ours begins the aliases of the devices that attaching brings, before a dash: libvirt leaves
// those that begin with ua- to its users, of whom another may have chosen the same.
const ours = "ua-pegasus"

// ours reports whether attaching brought a device: its alias begins so, it is of a kind that attaching brings, and it
// wasn't there before. A release that kept no record brought channels and NVDIMMs alone.
func (d *Definition) ours(v *device) bool {
	if !strings.HasPrefix(v.alias, ours+"-") || d.record != nil && slices.Contains(d.record.theirs, v.alias) {
		return false
	}
	switch v.tag {
	case "channel":
		return v.port == bell.Name
	case "memory":
		return v.model == "nvdimm"
	case "shmem", "controller":
		return d.record != nil
	}
	return false
}

// theirs are the aliases like ours that aren't.
func (d *Definition) theirs() (aliases []string) {
	for i := range d.all {
		if v := &d.all[i]; strings.HasPrefix(v.alias, ours+"-") && !d.ours(v) {
			aliases = append(aliases, v.alias)
		}
	}
	return aliases
}

// alias is one for a device of ours that no device has.
func (d *Definition) alias(what string) string {
	name := ours + "-" + what
	for n := 2; slices.ContainsFunc(d.all, func(v device) bool { return v.alias == name }); n++ {
		name = fmt.Sprintf("%s-%s-%d", ours, what, n)
	}
	return name
}

// Device is what a machine has its region as.
type Device string

const (
	// NVDIMM is persistent memory, on which the machine has a file system: it keeps its processes apart.
	NVDIMM Device = "nvdimm"
	// IVSHMEM is a PCI device: simple, and can be plugged into a machine that runs, but whoever has a part of it
	// can get at all.
	IVSHMEM Device = "ivshmem"
)

// RegionDir is where its region lies, if attaching brought that; else nothing.
func (d *Definition) RegionDir() string {
	for i := range d.all {
		if v := &d.all[i]; v.tag == "memory" && d.ours(v) {
			return filepath.Dir(v.path)
		}
	}
	return ""
}

// newDevices are what an attached machine has. Each has an alias of ours.
func (d *Definition) newDevices(a Attachment) []string {
	port := channel(a.Region, d.alias("port"))
	if a.Device == IVSHMEM {
		return []string{port, ivshmem(a, d.alias("region"))}
	}
	return []string{port, nvdimm(a.Region, a.Bytes, d.alias("region"))}
}

// broughtDevices is how many newDevices has.
const broughtDevices = 2

// Plugs are the devices that give a machine its region while it runs. Its port needs a controller
// that is there: libvirt plugs in none.
func (d *Definition) Plugs(a Attachment) []string {
	if slices.ContainsFunc(d.all, func(c device) bool { return c.tag == "controller" && c.kind == "virtio-serial" }) {
		return d.newDevices(a)
	}
	return []string{ivshmem(a, d.alias("region"))}
}

// Plugged are the aliases of what detaching takes out of a machine that runs, but for controllers. An
// NVDIMM can't be.
func (d *Definition) Plugged(dir string) (aliases []string) {
	for _, v := range d.leaving(dir) {
		if v.tag != "controller" && v.tag != "memory" && v.alias != "" {
			aliases = append(aliases, v.alias)
		}
	}
	return aliases
}

// ivshmem is the master of its memory: else the machine couldn't be saved.
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

// Added is the definition with an alias of ours for each controller that libvirt brought
// for our devices: those that were not there before. It is the same text if there is none.
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

// leaving are the devices that detaching takes away: the regions in a directory and what
// came with them. A controller stays if anything else is plugged into it by now.
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

// used says whether a device is plugged into a controller, but for those that go.
func (d *Definition) used(c *device, gone []*device) bool {
	for i := range d.all {
		if v := &d.all[i]; !slices.Contains(gone, v) && slices.Contains(v.on, c.controls()) {
			return true
		}
	}
	return false
}
