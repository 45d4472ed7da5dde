//go:build cgo && libvirt_dlopen

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"libvirt.org/go/libvirt"
)

// plug adds the device described on in to a running machine.
func plug(uri, name string, in io.Reader, out *json.Encoder) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	return withMachine(uri, name, func(d *libvirt.Domain) error {
		if err := d.AttachDeviceFlags(string(text), libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
			return err
		}
		return describe(d, out)
	})
}

// unplugTime is the time limit for a machine's kernel to release a device.
const unplugTime = 20 * time.Second

// unplug removes a device from a running machine, and blocks until it is gone: the machine's kernel must
// release it.
func unplug(uri, name, alias string, out *json.Encoder) error {
	return withMachine(uri, name, func(d *libvirt.Domain) error {
		if err := d.DetachDeviceAlias(alias, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
			return err
		}
		for end := time.Now().Add(unplugTime); ; time.Sleep(50 * time.Millisecond) {
			text, err := d.GetXMLDesc(0)
			if err != nil {
				return err
			}
			if !strings.Contains(text, "'"+alias+"'") {
				return describe(d, out)
			}
			if time.Now().After(end) {
				return fmt.Errorf("the machine doesn't let go of its device %s", alias)
			}
		}
	})
}

func withMachine(uri, name string, do func(*libvirt.Domain) error) error {
	return with(uri, func(c *libvirt.Connect) error {
		d, err := c.LookupDomainByName(name)
		if err != nil {
			return err
		}
		defer d.Free()
		return do(d)
	})
}
