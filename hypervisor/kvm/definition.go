package kvm

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Definition is a machine as libvirt has it in XML, with what of it matters to us. It
// is changed as text: all that we don't understand stays as it is.
type Definition struct {
	Name string
	text []byte

	memory    quantity
	maxMemory quantity
	slots     int
	vcpus     int
	cpu, numa span
	devices   span
	regions   []region
}

// span is an element's place in the text; the whole of it, and what is between its tags.
// end is 0 if there is no such element.
type span struct{ start, inner, innerEnd, end int }

func (s span) there() bool { return s.end != 0 }

// quantity is an element that holds so many bytes.
type quantity struct {
	span
	bytes uint64
}

// region is an NVDIMM.
type region struct {
	span
	path  string
	bytes uint64
}

// Parse reads a definition.
func Parse(text []byte) (*Definition, error) {
	d := &Definition{text: text}
	p := parser{dec: xml.NewDecoder(bytes.NewReader(text)), text: text}
	err := p.walk(d)
	if err == nil && (d.Name == "" || d.devices.innerEnd == d.devices.end || !d.memory.there()) {
		err = errors.New("it has no name, memory or devices")
	}
	if err != nil {
		return nil, fmt.Errorf("not a machine's definition: %w", err)
	}
	return d, nil
}

// parser walks through the elements.
type parser struct {
	dec  *xml.Decoder
	text []byte
}

// element is one that is open.
type element struct {
	name string
	span
	attributes []xml.Attr
	chars      strings.Builder
}

func (e *element) attribute(name string) string {
	for _, a := range e.attributes {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (p *parser) walk(d *Definition) error {
	var open []*element
	var dimm region
	for {
		from := int(p.dec.InputOffset())
		t, err := p.dec.RawToken()
		if err == io.EOF && len(open) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			open = append(open, &element{name: t.Name.Local, attributes: slices.Clone(t.Attr), span: span{start: from, inner: int(p.dec.InputOffset())}})
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].chars.Write(t)
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1].name != t.Name.Local {
				return fmt.Errorf("</%s> at %d closes nothing", t.Name.Local, from)
			}
			e := open[len(open)-1]
			e.innerEnd, e.end = from, int(p.dec.InputOffset())
			if err := d.note(pathOf(open), e, &dimm); err != nil {
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

// note takes down an element that has ended. What a memory device has inside ends before it.
func (d *Definition) note(path string, e *element, dimm *region) (err error) {
	switch path {
	case "/domain/name":
		d.Name = strings.TrimSpace(e.chars.String())
	case "/domain/memory":
		d.memory, err = quantityOf(e)
	case "/domain/maxMemory":
		if d.maxMemory, err = quantityOf(e); err == nil {
			d.slots, err = strconv.Atoi(e.attribute("slots"))
		}
	case "/domain/vcpu":
		d.vcpus, err = strconv.Atoi(strings.TrimSpace(e.chars.String()))
	case "/domain/cpu":
		d.cpu = e.span
	case "/domain/cpu/numa":
		d.numa = e.span
	case "/domain/devices":
		d.devices = e.span
	case "/domain/devices/memory/source/path":
		dimm.path = strings.TrimSpace(e.chars.String())
	case "/domain/devices/memory/target/size":
		var q quantity
		q, err = quantityOf(e)
		dimm.bytes = q.bytes
	case "/domain/devices/memory":
		if e.attribute("model") == "nvdimm" {
			dimm.span = e.span
			d.regions = append(d.regions, *dimm)
		}
		*dimm = region{}
	}
	return err
}

var units = map[string]uint64{
	"b": 1, "bytes": 1, "KB": 1000, "k": 1 << 10, "KiB": 1 << 10, "": 1 << 10, "MB": 1e6, "M": 1 << 20, "MiB": 1 << 20,
	"GB": 1e9, "G": 1 << 30, "GiB": 1 << 30, "TB": 1e12, "T": 1 << 40, "TiB": 1 << 40,
}

func quantityOf(e *element) (quantity, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(e.chars.String()), 10, 63)
	unit, ok := units[e.attribute("unit")]
	if err != nil || !ok || n > 1<<62/unit {
		return quantity{}, fmt.Errorf("%s: %q %s is no size", e.name, e.chars.String(), e.attribute("unit"))
	}
	return quantity{e.span, n * unit}, nil
}

// Region is the machine's region in a directory, if it has one.
func (d *Definition) Region(dir string) (path string, bytes uint64, ok bool) {
	for _, r := range d.regions {
		if filepath.Dir(r.path) == filepath.Clean(dir) {
			return r.path, r.bytes, true
		}
	}
	return "", 0, false
}

// edit replaces a part of the text.
type edit struct {
	from, to int
	text     string
}

// WithRegion is the definition with a region: the NVDIMM, a slot and addresses for it,
// and the NUMA cell that it has to belong to. One that it has in the directory is replaced.
func (d *Definition) WithRegion(path string, size uint64) ([]byte, error) {
	if size < minRegion || size%regionUnit != 0 {
		return nil, fmt.Errorf("region of %d bytes: want a multiple of 2 MiB, at least %d", size, minRegion)
	}
	dimm := fmt.Sprintf("<memory model='nvdimm' access='shared'>\n      <source>\n        <path>%s</path>\n      </source>\n"+
		"      <target>\n        <size unit='KiB'>%d</size>\n        <node>0</node>\n      </target>\n    </memory>", escape(path), size>>10)
	for _, r := range d.regions {
		if filepath.Dir(r.path) == filepath.Dir(path) && d.maxMemory.there() && d.numa.there() {
			return apply(d.text, []edit{{r.start, r.end, dimm}, d.moreMemory(0, size)}), nil
		}
	}
	edits := []edit{{d.devices.innerEnd, d.devices.innerEnd, "  " + dimm + "\n  "}, d.moreMemory(1, size)}
	if !d.numa.there() {
		edits = append(edits, d.cell())
	}
	return apply(d.text, edits), nil
}

// moreMemory makes room for an NVDIMM: QEMU wants as many addresses as there is memory,
// and some to align it.
func (d *Definition) moreMemory(slots int, size uint64) edit {
	const slack = 1 << 30
	if !d.maxMemory.there() {
		return edit{d.memory.start, d.memory.start, fmt.Sprintf("<maxMemory slots='%d' unit='KiB'>%d</maxMemory>\n  ", slots, (d.memory.bytes+size+slack)>>10)}
	}
	most := max(d.maxMemory.bytes+uint64(slots)*size, d.memory.bytes+size+slack)
	return edit{d.maxMemory.start, d.maxMemory.end, fmt.Sprintf("<maxMemory slots='%d' unit='KiB'>%d</maxMemory>", d.slots+slots, most>>10)}
}

// cell puts all of the machine into one NUMA cell.
func (d *Definition) cell() edit {
	cpus := "0"
	if d.vcpus > 1 {
		cpus = fmt.Sprintf("0-%d", d.vcpus-1)
	}
	numa := fmt.Sprintf("<numa>\n      <cell id='0' cpus='%s' memory='%d' unit='KiB'/>\n    </numa>", cpus, d.memory.bytes>>10)
	switch {
	case !d.cpu.there():
		return edit{d.devices.start, d.devices.start, "<cpu>\n    " + numa + "\n  </cpu>\n  "}
	case bytes.HasSuffix(d.text[d.cpu.start:d.cpu.inner], []byte("/>")):
		return edit{d.cpu.inner - 2, d.cpu.inner, ">\n    " + numa + "\n  </cpu>"}
	default:
		return edit{d.cpu.innerEnd, d.cpu.innerEnd, "  " + numa + "\n  "}
	}
}

// WithoutRegion is the definition without its regions in a directory. What was made for
// them stays, but for the slot: it does no harm, and others may use it by now.
func (d *Definition) WithoutRegion(dir string) ([]byte, error) {
	var edits []edit
	for _, r := range d.regions {
		if filepath.Dir(r.path) != filepath.Clean(dir) {
			continue
		}
		from := r.start
		for from > 0 && strings.ContainsRune(" \t\n", rune(d.text[from-1])) {
			from--
		}
		edits = append(edits, edit{from, r.end, ""})
	}
	if len(edits) == 0 {
		return nil, fmt.Errorf("machine %q has no region in %s", d.Name, dir)
	}
	if d.maxMemory.there() && d.slots > len(edits) {
		edits = append(edits, edit{d.maxMemory.start, d.maxMemory.end, fmt.Sprintf("<maxMemory slots='%d' unit='KiB'>%d</maxMemory>", d.slots-len(edits), d.maxMemory.bytes>>10)})
	}
	return apply(d.text, edits), nil
}

func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(b.from, a.from) })
	for _, e := range edits {
		text = slices.Concat(text[:e.from], []byte(e.text), text[e.to:])
	}
	return text
}

func escape(s string) string {
	var b bytes.Buffer
	xml.EscapeText(&b, []byte(s))
	return b.String()
}
