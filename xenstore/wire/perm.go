package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// DomID is the number of a domain.
type DomID uint16

// Self is the calling domain's number in hypercalls.
const Self DomID = 0x7ff0

// ParseDomID parses a number from 0 to 65535.
func ParseDomID(s string) (DomID, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no domain: it wants a number from 0 to 65535", s)
	}
	return DomID(n), nil
}

// String returns the number.
func (d DomID) String() string { return strconv.Itoa(int(d)) }

// Access is a domain's access to a node.
type Access uint8

// The values combine with |.
const (
	None      Access = 0
	CanRead   Access = 1
	CanWrite  Access = 2
	ReadWrite        = CanRead | CanWrite
)

// accessLetters are indexed by Access.
const accessLetters = "nrwb"

// Perm gives a domain access to a node. The first one of a node is special: its
// domain owns the node, and its access is that of all domains which aren't named.
type Perm struct {
	Access Access
	Dom    DomID
}

// String returns the text form, such as "r12": domain 12 may read.
func (p Perm) String() string { return accessLetters[p.Access&3:][:1] + p.Dom.String() }

// ParsePerm parses the result of String.
func ParsePerm(s string) (Perm, error) {
	if s == "" || !strings.Contains(accessLetters, s[:1]) {
		return Perm{}, fmt.Errorf("%q is no permission: it wants n, r, w or b and a domain, as in r12", s)
	}
	dom, err := ParseDomID(s[1:])
	if err != nil {
		return Perm{}, fmt.Errorf("permission %q: %w", s, err)
	}
	return Perm{Access(strings.Index(accessLetters, s[:1])), dom}, nil
}

// ParsePerms parses the permissions in a body.
func ParsePerms(parts []string) ([]Perm, error) {
	perms := make([]Perm, 0, len(parts))
	for _, s := range parts {
		p, err := ParsePerm(s)
		if err != nil {
			return nil, err
		}
		perms = append(perms, p)
	}
	return perms, nil
}
