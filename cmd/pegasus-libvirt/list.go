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
	if m.Of, m.Next, err = regionIn(d, libvirt.DOMAIN_XML_INACTIVE, regions); err != nil || !m.Runs {
		return m, err
	}
	var of string
	if of, m.Now, err = regionIn(d, 0, regions); of != "" {
		m.Of = of
	}
	return m, err
}

// regionIn is the name and size of a machine's region, if it has one.
func regionIn(d *libvirt.Domain, which libvirt.DomainXMLFlags, regions string) (of string, bytes uint64, err error) {
	text, err := d.GetXMLDesc(which)
	if err != nil {
		return "", 0, err
	}
	definition, err := kvm.Parse([]byte(text))
	if err != nil {
		return "", 0, nil // no machine of QEMU's
	}
	path, bytes, ok := definition.Region(regions)
	if !ok {
		return "", 0, nil
	}
	return filepath.Base(path), bytes, nil
}
