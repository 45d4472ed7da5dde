package kvm

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// ours begins the aliases of the devices that attaching brings, before a dash: libvirt leaves
// those that begin with ua- to its users.
const ours = "ua-pegasus"

func (d *device) ours() bool { return strings.HasPrefix(d.alias, ours+"-") }

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
		if v := &d.all[i]; v.alias == ours+"-region" && v.path != "" {
			return filepath.Dir(v.path)
		}
	}
	return ""
}

// newDevices are what an attached machine has. Each has an alias of ours.
func newDevices(a Attachment) []string {
	if a.Device == IVSHMEM {
		return []string{channel(a.Region), ivshmem(a)}
	}
	return []string{channel(a.Region), nvdimm(a.Region, a.Bytes)}
}

// Plugs are the devices that give a machine its region while it runs. Its port needs a controller
// that is there: libvirt plugs in none.
func (d *Definition) Plugs(a Attachment) []string {
	if slices.ContainsFunc(d.all, func(c device) bool { return c.tag == "controller" && c.kind == "virtio-serial" }) {
		return newDevices(a)
	}
	return []string{ivshmem(a)}
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
func ivshmem(a Attachment) string {
	return fmt.Sprintf(`<shmem name='%s' role='master'>
      <model type='ivshmem-plain'/>
      <size unit='M'>%d</size>
      <alias name='%s-region'/>
    </shmem>`, escape(sharedName(a.Region)), a.Bytes>>20, ours)
}

func nvdimm(path string, bytes uint64) string {
	return fmt.Sprintf(`<memory model='nvdimm' access='shared'>
      <source>
        <path>%s</path>
      </source>
      <target>
        <size unit='KiB'>%d</size>
        <node>0</node>
      </target>
      <alias name='%s-region'/>
    </memory>`, escape(path), bytes>>10, ours)
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
		was := slices.ContainsFunc(before.all, func(o device) bool { return o.tag == "controller" && o.controls() == c.controls() && !o.ours() })
		if c.tag != "controller" || was || c.alias != "" {
			continue
		}
		alias := fmt.Sprintf("\n      <alias name='%s-%s-%s'/>", ours, c.kind, c.index)
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
		if _, is := v.region(dir); is || v.ours() && v.tag != "controller" {
			gone = append(gone, v)
		}
	}
	for more := true; more; {
		more = false
		for i := range d.all {
			c := &d.all[i]
			if c.tag == "controller" && c.ours() && !slices.Contains(gone, c) && !d.used(c, gone) {
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
