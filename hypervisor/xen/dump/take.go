package dump

import "fmt"

// Xen is what is asked of the hypervisor, such as of control.Xen.
type Xen interface {
	Press(keys string) error
	Console(from uint32) (text []byte, next uint32, err error)
}

// Printer has the hypervisor print. One goroutine uses it.
type Printer struct {
	xen  Xen
	next uint32 // where the console was read up to
}

// NewPrinter is that of a hypervisor.
func NewPrinter(x Xen) *Printer { return &Printer{xen: x} }

// Take has the hypervisor print what it schedules, and returns that.
func (p *Printer) Take() (text string, err error) {
	if _, p.next, err = console(p.xen, p.next); err != nil { // what was there before
		return "", err
	}
	if err := p.xen.Press("r"); err != nil {
		return "", err
	}
	text, p.next, err = console(p.xen, p.next)
	return text, err
}

// maxReads is how many parts the console may come in; who prints all the time has no end.
const maxReads = 64

// console is all of the console from an index on.
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
