package xen

import (
	"golang.org/x/sys/unix"

	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
)

// grantTables grants read access to tables that contain the grant references of pages; each but the last contains the
// reference of the next table.
func grantTables(refs []grant.Ref) (*grant.Grant, error) {
	tables, err := grant.GrantPages(dom0, region.Tables(len(refs)), false)
	if err != nil {
		return nil, err
	}
	mem, err := tables.Map()
	if err != nil {
		tables.Close()
		return nil, err
	}
	defer unix.Munmap(mem)
	fillTables(mem, refs, tables.Refs)
	return tables, nil
}

// fillTables writes the tables. Their own references are tables.
func fillTables(mem []byte, refs, tables []grant.Ref) {
	for i := range tables {
		n := min(len(refs), region.TableRefs)
		next := grant.Ref(0)
		if i+1 < len(tables) {
			next = tables[i+1]
		}
		region.PutTable(mem[i*grant.PageBytes:], numbers(refs[:n]), uint32(next))
		refs = refs[n:]
	}
}

func numbers(refs []grant.Ref) []uint32 {
	n := make([]uint32, len(refs))
	for i, r := range refs {
		n[i] = uint32(r)
	}
	return n
}
