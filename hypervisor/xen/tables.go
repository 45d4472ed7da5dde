package xen

import (
	"bytes"
	"fmt"

	"pegasus/callbuf/grant"
	wire "pegasus/callbuf/region"
)

// reader reads a domain's pages.
type reader interface {
	// Read returns a copy of a page.
	Read(grant.Ref) ([]byte, error)
}

// controlPages returns the pages of the control area with the given first page.
func controlPages(from reader, first grant.Ref) ([]grant.Ref, error) {
	page, err := from.Read(first)
	if err != nil {
		return nil, fmt.Errorf("control area: %w", err)
	}
	rest, next, err := wire.ParseTable(page[wire.ControlTable:])
	if err != nil {
		return nil, fmt.Errorf("control area: %w", err)
	}
	if next != 0 || len(rest) != wire.ControlPages-1 {
		return nil, fmt.Errorf("control area: a table of %d pages, and another at %d: want %d, and none", len(rest), next, wire.ControlPages-1)
	}
	return append([]grant.Ref{first}, references(rest)...), nil
}

// segmentPages follows a chain of tables with exactly the given number of pages. No table is read twice, and no more
// tables than that takes.
func segmentPages(from reader, first grant.Ref, pages int) (all []grant.Ref, err error) {
	next := uint32(first)
	for range wire.Tables(pages) {
		page, err := from.Read(grant.Ref(next))
		if err != nil {
			return nil, fmt.Errorf("table of granted pages: %w", err)
		}
		var refs []uint32
		if refs, next, err = wire.ParseTable(page); err != nil {
			return nil, err
		}
		if all = append(all, references(refs)...); next == 0 || len(all) > pages {
			break
		}
	}
	if next != 0 || len(all) != pages {
		return nil, fmt.Errorf("the agent grants %d pages, and has another table at %d: want %d pages", len(all), next, pages)
	}
	return all, nil
}

func references(numbers []uint32) []grant.Ref {
	refs := make([]grant.Ref, len(numbers))
	for i, n := range numbers {
		refs[i] = grant.Ref(n)
	}
	return refs
}

// copyPage returns a copy of a page, which it maps for that.
func copyPage(of grant.Domain, r grant.Ref) ([]byte, error) {
	mem, unmap, err := grant.Map(of, []grant.Ref{r}, false)
	if err != nil {
		return nil, fmt.Errorf("page %d: %w", r, err)
	}
	defer unmap()
	return bytes.Clone(mem), nil
}
