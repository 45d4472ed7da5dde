package xenstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"pegasus/xenstore/wire"
)

// listTries bounds the attempts to read a directory that keeps changing.
const listTries = 1000

// listBytes bounds the bytes of names read, so that a server that never ends a list can't fill our memory.
const listBytes = 16 << 20

// List returns the names of a node's children, in the server's order. A list that is too long for a packet is read in
// parts, from the beginning if it has changed meanwhile: the result existed at one time.
func (n Nodes) List(ctx context.Context, path string) ([]string, error) {
	body, err := n.ask(ctx, wire.Directory, path, nil)
	if !errors.Is(err, syscall.E2BIG) {
		return wire.Split(body), err
	}
	for range listTries {
		names, whole, err := n.listParts(ctx, path)
		if whole || err != nil {
			return names, err
		}
	}
	return nil, &Error{wire.DirectoryPart, path, fmt.Errorf("%w: it changed each of %d times that it was read; try in a transaction", syscall.EAGAIN, listTries)}
}

// listParts reads a directory in parts. whole is false if it changed between them.
func (n Nodes) listParts(ctx context.Context, path string) (names []string, whole bool, err error) {
	first := ""
	for offset := 0; ; {
		body, err := n.ask(ctx, wire.DirectoryPart, path, wire.Join(strconv.Itoa(offset)))
		if err != nil {
			return nil, false, err
		}
		part := wire.Split(body)
		if len(part) < 2 {
			return nil, false, &Error{wire.DirectoryPart, path, fmt.Errorf("an answer of %q", body)}
		}
		if offset == 0 {
			first = part[0]
		}
		if part[0] != first {
			return nil, false, nil
		}
		for _, name := range part[1:] {
			if name == "" { // the end of the list
				return names, true, nil
			}
			names = append(names, name)
			offset += len(name) + 1
		}
		if offset > listBytes {
			return nil, false, &Error{wire.DirectoryPart, path, fmt.Errorf("%w: the names of its children have more than %d bytes", syscall.E2BIG, listBytes)}
		}
	}
}
