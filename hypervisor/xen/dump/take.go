package dump

import "fmt"

// Xen is what is asked of the hypervisor, such as of control.Xen.
type Xen interface {
	Press(keys string) error
	Console(from uint32) (text []byte, next uint32, err error)
}

// Take has the hypervisor print what it schedules, and returns that.
func Take(x Xen) (text string, err error) {
	_, from, err := console(x, 0) // what was there before
	if err != nil {
		return "", err
	}
	if err := x.Press("r"); err != nil {
		return "", err
	}
	text, _, err = console(x, from)
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
