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

// list prints all machines with a region in a directory, now or from their next start on.
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

// names prints the names of all machines that libvirt keeps when they end.
func names(uri string, out *json.Encoder) error {
	return with(uri, func(c *libvirt.Connect) error {
		domains, err := c.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_PERSISTENT)
		if err != nil {
			return err
		}
		all := []string{}
		for i := range domains {
			if name, err := domains[i].GetName(); err == nil {
				all = append(all, name)
			}
			domains[i].Free()
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
	next, definition, err := regionIn(d, libvirt.DOMAIN_XML_INACTIVE, regions)
	take(&m, next, &m.Next)
	if definition != nil {
		m.Memory, m.Counted, _ = definition.BesideCells(regions)
	}
	if err != nil || !m.Runs {
		return m, err
	}
	now, _, err := regionIn(d, 0, regions)
	take(&m, now, &m.Now)
	return m, err
}

// regionIn returns a machine's region, if it has one, and its definition, if it is a QEMU machine.
func regionIn(d *libvirt.Domain, which libvirt.DomainXMLFlags, regions string) (a kvm.Attachment, definition *kvm.Definition, err error) {
	text, err := d.GetXMLDesc(which)
	if err != nil {
		return a, nil, err
	}
	if definition, err = kvm.Parse([]byte(text)); err != nil {
		return a, nil, nil
	}
	a, _ = definition.Attached(regions)
	return a, definition, nil
}

// take adds a region to a list, if it is one.
func take(m *report.Listed, a kvm.Attachment, bytes *uint64) {
	if a.Region == "" {
		return
	}
	m.Of, *bytes = filepath.Base(a.Region), a.Bytes
	m.Shared = a.Device == kvm.IVSHMEM
}
