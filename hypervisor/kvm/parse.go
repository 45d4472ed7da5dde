package kvm

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// element is an open XML element.
type element struct {
	name string // with the prefix of its namespace, if it has one
	span
	attributes []xml.Attr
	chars      strings.Builder
}

func (e *element) attribute(name string) string {
	for _, a := range e.attributes {
		if a.Name.Space == "" && a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// text returns the element's text.
func (e *element) text() string { return strings.TrimSpace(e.chars.String()) }

func nameOf(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

// read parses all elements.
func (d *Definition) read() error {
	dec := xml.NewDecoder(bytes.NewReader(d.text))
	var open []*element
	var device device
	for {
		from := int(dec.InputOffset())
		t, err := dec.RawToken()
		if err == io.EOF && len(open) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			open = append(open, &element{name: nameOf(t.Name), attributes: slices.Clone(t.Attr), span: span{start: from, inner: int(dec.InputOffset())}})
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].chars.Write(t)
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1].name != nameOf(t.Name) {
				return fmt.Errorf("</%s> at %d closes nothing", nameOf(t.Name), from)
			}
			e := open[len(open)-1]
			e.innerEnd, e.end = from, int(dec.InputOffset())
			path := pathOf(open)
			err := d.note(path, open)
			if err == nil && strings.HasPrefix(path, "/domain/devices/") {
				err = d.noteDevice(&device, strings.TrimPrefix(path, "/domain/devices/"), e)
			}
			if err != nil {
				return err
			}
			open = open[:len(open)-1]
		}
	}
}

func pathOf(open []*element) string {
	var b strings.Builder
	for _, e := range open {
		b.WriteString("/" + e.name)
	}
	return b.String()
}

// note records the innermost open element, which has ended.
func (d *Definition) note(path string, open []*element) (err error) {
	e := open[len(open)-1]
	switch path {
	case "/domain":
		d.kind = e.attribute("type")
	case "/domain/name":
		d.Name = e.text()
		err = once(&d.name, e)
	case "/domain/os/type":
		d.arch, d.machine = e.attribute("arch"), e.attribute("machine")
	case "/domain/features/acpi":
		d.acpi = true
	case "/domain/launchSecurity":
		d.sealed = true
	case "/domain/memory":
		err = d.memory.read(e)
	case "/domain/currentMemory":
		err = d.current.read(e)
	case "/domain/maxMemory":
		if err = d.maxMemory.read(e); err == nil && e.attribute("slots") != "" { // a machine with virtio-mem alone needs none
			d.slots, err = number(e, e.attribute("slots"))
		}
	case "/domain/vcpu":
		if e.text() != "" {
			d.vcpus, err = number(e, e.text())
		}
	case "/domain/cpu/numa/cell":
		var bytes uint64
		if bytes, err = size(e, e.attribute("memory")); err == nil {
			d.cells += bytes
		}
	case "/domain/cpu":
		err = once(&d.cpu, e)
	case "/domain/cpu/numa":
		err = once(&d.numa, e)
	case "/domain/devices":
		err = once(&d.devices, e)
	case "/domain/metadata":
		err = once(&d.metadata, e)
	default:
		rest, ok := strings.CutPrefix(path, "/domain/metadata/")
		switch {
		case !ok || rest != e.name || !inOurSpace(open):
		case !strings.HasSuffix(e.name, ":machine"):
			d.squatter = e.name
		case d.record != nil:
			return fmt.Errorf("there are two <%s>", e.name)
		default:
			d.record, err = readRecord(e)
		}
	}
	return err
}

// once records the only element of its kind.
func once(s *span, e *element) error {
	if s.there() {
		return fmt.Errorf("there are two <%s>", e.name)
	}
	*s = e.span
	return nil
}

func number(e *element, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is no number of them", e.name, text)
	}
	return int(n), nil
}

// noteDevice records an element inside a device, and at its end the device.
func (d *Definition) noteDevice(dev *device, path string, e *element) error {
	inside := path
	if i := strings.IndexByte(path, '/'); i >= 0 {
		inside = path[i+1:]
	} else {
		dev.span, dev.tag, dev.model = e.span, e.name, cmp.Or(e.attribute("model"), dev.model)
		dev.kind, dev.index, dev.name = e.attribute("type"), e.attribute("index"), e.attribute("name")
		d.all = append(d.all, *dev)
		*dev = device{}
		return nil
	}
	size := inside == "target/size" || path == "shmem/size"
	switch {
	case inside == "alias":
		dev.alias = e.attribute("name")
	case path == "shmem/model":
		dev.model = e.attribute("type")
	case inside == "address":
		dev.on = append(dev.on, pluggedInto(e))
	case inside == "target":
		dev.port = e.attribute("name")
	case path == "channel/source":
		dev.path, dev.mode = e.attribute("path"), e.attribute("mode")
	case inside == "source/path":
		dev.path = e.text()
	case size:
		var q quantity
		if err := q.read(e); err != nil {
			return err
		}
		dev.bytes = q.bytes
	}
	return nil
}

// pluggedInto returns the controller of an address.
func pluggedInto(e *element) string {
	at := e.attribute("controller")
	if e.attribute("type") == "pci" {
		at = e.attribute("bus")
	}
	if n, err := strconv.ParseUint(at, 0, 16); err == nil {
		at = strconv.FormatUint(n, 10)
	}
	return e.attribute("type") + " " + at
}

// unit returns the number of bytes of one of libvirt's units.
func unit(name string) (uint64, bool) {
	name = strings.ToLower(name)
	base := uint64(1 << 10)
	switch {
	case name == "":
		return 1 << 10, true
	case name == "b" || name == "byte" || name == "bytes":
		return 1, true
	case len(name) == 2 && name[1] == 'b':
		base = 1000
	case len(name) != 1 && name[1:] != "ib":
		return 0, false
	}
	n := uint64(1)
	for range strings.IndexByte("kmgtpe", name[0]) + 1 {
		n *= base
	}
	return n, n > 1
}

// size returns the bytes of a number in an element's units.
func size(e *element, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	scale, ok := unit(e.attribute("unit"))
	if err != nil || !ok || n > 1<<62/scale {
		return 0, fmt.Errorf("%s: %q %s is no size", e.name, text, e.attribute("unit"))
	}
	return n * scale, nil
}

func (q *quantity) read(e *element) (err error) {
	if q.bytes, err = size(e, e.text()); err != nil {
		return err
	}
	q.unit, _ = unit(e.attribute("unit"))
	return once(&q.span, e)
}
