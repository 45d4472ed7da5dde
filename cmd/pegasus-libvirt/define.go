//go:build cgo && libvirt_dlopen

package main

import (
	"encoding/json"
	"errors"
	"io"

	"libvirt.org/go/libvirt"

	report "pegasus/hypervisor/libvirt"
)

// secure includes the parts that libvirt otherwise omits, such as passwords: defining a machine without them
// would remove them.
const secure = libvirt.DOMAIN_XML_SECURE

// show prints libvirt's data of a machine.
func show(uri, name string, out *json.Encoder) error {
	return withMachine(uri, name, func(d *libvirt.Domain) error { return describe(d, out) })
}

// define replaces a machine's definition by the one read from in.
func define(uri string, in io.Reader, out *json.Encoder) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	return with(uri, func(c *libvirt.Connect) error {
		d, err := c.DomainDefineXML(string(text))
		if err != nil {
			return err
		}
		defer d.Free()
		return describe(d, out)
	})
}

func describe(d *libvirt.Domain, out *json.Encoder) (err error) {
	var s report.Shown
	if s.Lasting, err = d.IsPersistent(); err != nil {
		return err
	}
	if s.Definition, err = d.GetXMLDesc(secure | libvirt.DOMAIN_XML_INACTIVE); err != nil {
		return err
	}
	if s.Runs, err = d.IsActive(); err != nil {
		return err
	}
	if s.Saved, err = d.HasManagedSaveImage(0); err != nil {
		return err
	}
	if s.Runs {
		if s.Live, err = d.GetXMLDesc(secure); err != nil {
			return err
		}
	}
	return out.Encode(s)
}

// with calls do with a connection. Errors have libvirt's texts.
func with(uri string, do func(*libvirt.Connect) error) error {
	c, err := libvirt.NewConnect(uri)
	if err == nil {
		defer c.Close()
		err = do(c)
	}
	if err != nil {
		return errors.New(reason(err))
	}
	return nil
}
