package region

import (
	"errors"
	"fmt"
)

// Under Xen there is no region, but pages of the machine that its kernel grants to the host, each identified
// by a number. Numbers that do not fit into a message are in tables, which are granted pages, too:
//
//	0x0  magic
//	0x4  count of the numbers that follow in this table
//	0x8  the number of the next table's page; 0: there is none
//	0xc  0
//	0x10 numbers of pages
//
// The control area's first page has the numbers of its other pages in a table at ControlTable. Agent and hub
// find each other by the machine's XenStore entries below StoreDir.

// The entries that an agent writes below StoreDir, StoreState last; all except StoreState are decimal
// numbers.
const (
	StoreDir     = "data/pegasus"
	StoreVersion = "version" // of this protocol: StoreVersion1
	StoreControl = "control" // the number of the control area's first page
	StorePort    = "port"    // of an event channel to which the hub may bind itself
	StoreState   = "state"   // StoreReady, as long as the agent is there

	StoreVersion1 = "1"
	StoreReady    = "ready"
)

const (
	tableMagic = 0x4c42_5450 // "PTBL"
	tableHead  = 16

	// TableRefs is the number of entries in a table that fills a page.
	TableRefs = (PageBytes - tableHead) / 4
	// ControlTable is the offset of the control area's table, and ControlPages the number of the area's
	// pages; the table lists all but the first.
	ControlTable = 0x400
	ControlPages = ControlBytes / PageBytes
	// ControlAlive is a byte of the control area that the hub sets to 1; the kernel clears it, and
	// sends an event, when the hub ends.
	ControlAlive = 0x300
	// ControlAgent is a byte that the agent sets to 1 if its kernel clears it when no process in the machine
	// has the control area any more: then the agent has died, and leaves no state to another.
	ControlAgent = 0x340
)

// MaxRef is the highest supported number of a page: a machine that grants more pages is not served.
const MaxRef = 1<<24 - 1

// Tables returns the number of tables for that many numbers.
func Tables(refs int) int { return (refs + TableRefs - 1) / TableRefs }

// PutTable writes a table of at most TableRefs numbers, or as many as fit into mem.
func PutTable(mem []byte, refs []uint32, next uint32) {
	b := le.AppendUint32(nil, tableMagic)
	b = le.AppendUint32(b, uint32(len(refs)))
	b = le.AppendUint32(b, next)
	b = le.AppendUint32(b, 0)
	for _, r := range refs {
		b = le.AppendUint32(b, r)
	}
	copy(mem[:len(b)], b)
}

// ParseTable decodes a table, of which b is a private copy. No number is above MaxRef, or 0, which Xen uses
// itself; whether the machine grants such pages shows when they are mapped.
func ParseTable(b []byte) (refs []uint32, next uint32, err error) {
	if len(b) < tableHead || le.Uint32(b) != tableMagic {
		return nil, 0, errors.New("region: not a table of granted pages")
	}
	n := le.Uint32(b[4:])
	if next = le.Uint32(b[8:]); next > MaxRef {
		return nil, 0, fmt.Errorf("region: a table of granted pages at %d", next)
	}
	if n == 0 || uint64(n) > uint64(len(b)-tableHead)/4 {
		return nil, 0, fmt.Errorf("region: %d pages in a table of %d bytes", n, len(b))
	}
	refs = make([]uint32, n)
	for i := range refs {
		if refs[i] = le.Uint32(b[tableHead+4*i:]); refs[i] == 0 || refs[i] > MaxRef {
			return nil, 0, fmt.Errorf("region: granted page %d has number %d", i, refs[i])
		}
	}
	return refs, next, nil
}

// GrantBody encodes the body of a Grant: the first table's number, 0 if the machine has no room.
func GrantBody(table uint32) []byte { return le.AppendUint32(nil, table) }

// ParseGrant decodes the body of a Grant.
func ParseGrant(b []byte) (table uint32, err error) {
	if len(b) != 4 {
		return 0, fmt.Errorf("%w: grant of %d bytes", errMessage, len(b))
	}
	if table = le.Uint32(b); table > MaxRef {
		return 0, fmt.Errorf("%w: grant of page %d", errMessage, table)
	}
	return table, nil
}
