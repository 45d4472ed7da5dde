package dump

import "fmt"

// Xen are the hypercalls used, as control.Xen implements them.
type Xen interface {
	Press(keys string) error
	Console(from uint32) (text []byte, next uint32, err error)
}

// Printer triggers prints and reads them. Not safe for concurrent use.
type Printer struct {
	xen  Xen
	next uint32 // the console index read so far
}

// NewPrinter returns a Printer of a hypervisor.
func NewPrinter(x Xen) *Printer { return &Printer{xen: x} }

// Take triggers a print of the schedule and returns it.
func (p *Printer) Take() (text string, err error) {
	if _, p.next, err = console(p.xen, p.next); err != nil { // skip earlier output
		return "", err
	}
	if err := p.xen.Press("r"); err != nil {
		return "", err
	}
	text, p.next, err = console(p.xen, p.next)
	return text, err
}

// maxReads bounds the parts of the console's output, which is endless if a domain prints all the time.
const maxReads = 64

// console returns all console output from an index on.
func console(x Xen, from uint32) (text string, next uint32, err error) {
	for next = from; ; {
		part, to, err := x.Console(next)
		if err != nil {
			return "", from, err
		}
		if len(part) == 0 {
			return text, to, nil
		}
		if text += string(part); len(text) > maxReads<<16 {
			return "", from, fmt.Errorf("the console of Xen has no end: %d bytes", len(text))
		}
		next = to
	}
}
