//go:build cgo && libvirt_dlopen

package main

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"libvirt.org/go/libvirt"

	"pegasus/hypervisor/kvm"
	report "pegasus/hypervisor/libvirt"
)

// list prints all machines that have a region in a directory, now or from their next start on.
func list(uri, regions string, out *json.Encoder) error {
	return with(uri, func(c *libvirt.Connect) error {
		domains, err := c.ListAllDomains(0)
		if err != nil {
			return err
		}
		all := []report.Listed{}
		for i := range domains {
			m, err := listed(&domains[i], regions)
			domains[i].Free()
			if err != nil && !errors.Is(err, libvirt.ERR_NO_DOMAIN) {
				return err
			}
			if m.Next+m.Now != 0 {
				all = append(all, m)
			}
		}
		return out.Encode(all)
	})
}

func listed(d *libvirt.Domain, regions string) (m report.Listed, err error) {
	if m.Name, err = d.GetName(); err != nil {
		return m, err
	}
	if m.Runs, err = d.IsActive(); err != nil {
		return m, err
	}
	next, err := regionIn(d, libvirt.DOMAIN_XML_INACTIVE, regions)
	take(&m, next, &m.Next)
	if err != nil || !m.Runs {
		return m, err
	}
	now, err := regionIn(d, 0, regions)
	take(&m, now, &m.Now)
	return m, err
}

// regionIn is a machine's region, if it has one.
func regionIn(d *libvirt.Domain, which libvirt.DomainXMLFlags, regions string) (a kvm.Attachment, err error) {
	text, err := d.GetXMLDesc(which)
	if err != nil {
		return a, err
	}
	definition, err := kvm.Parse([]byte(text))
	if err != nil {
		return a, nil // no machine of QEMU's
	}
	a, _ = definition.Attached(regions)
	return a, nil
}

// take notes a region in a list, if it is one.
func take(m *report.Listed, a kvm.Attachment, bytes *uint64) {
	if a.Region == "" {
		return
	}
	m.Of, *bytes = filepath.Base(a.Region), a.Bytes
	m.Shared = a.Device == kvm.IVSHMEM
}
