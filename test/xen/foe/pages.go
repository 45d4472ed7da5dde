package main

import (
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
)

// lent is a segment as an honest agent lends it: its pages, and the tables that list their grants.
type lent struct {
	pages, tables *grant.Grant
}

func (l *lent) close() {
	l.pages.Close()
	l.tables.Close()
}

func (l *lent) table() uint32 { return uint32(l.tables.Refs[0]) }

// lend grants a segment to a domain. The domain may write the segment's first pages, and the others if writable is set.
func lend(to grant.Domain, bytes uint64, writable bool) (*lent, error) {
	pages, err := grant.GrantPages(to, int(bytes/grant.PageBytes), writable)
	if err != nil {
		return nil, err
	}
	tables, err := grant.GrantPages(0, region.Tables(len(pages.Refs)), true)
	if err != nil {
		pages.Close()
		return nil, err
	}
	l := &lent{pages, tables}
	if err := l.fill(pages.Refs); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// fill writes pages' numbers into the tables.
func (l *lent) fill(all []grant.Ref) error {
	mem, err := l.tables.Map()
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	var refs []uint32
	for _, r := range all {
		refs = append(refs, uint32(r))
	}
	for i := range l.tables.Refs {
		some, next := refs[:min(len(refs), region.TableRefs)], uint32(0)
		if i+1 < len(l.tables.Refs) {
			next = uint32(l.tables.Refs[i+1])
		}
		region.PutTable(mem[i*grant.PageBytes:], some, next)
		refs = refs[len(some):]
	}
	return nil
}

// foreign lends pages that Dom0 may only read, or that are granted to another domain instead of Dom0: all pages, or
// all but the first ones, which the hub itself maps.
func foreign(end time.Time) (n int, err error) {
	a, err := newAgent()
	if err != nil {
		return 0, err
	}
	defer a.close()
	for ; time.Now().Before(end); n++ {
		if a.session(end) != nil {
			return n, nil // until the end
		}
		p, bytes, ok := a.ask()
		if !ok {
			a.begin()
			a.ring()
			continue
		}
		to := grant.Domain(n / 4 % 2)
		l, err := lend(to, bytes, n/2%2 == 0 && to != 0)
		if err != nil {
			return n, err
		}
		if n%2 == 0 {
			first, err := grant.GrantPages(0, 1, true)
			if err != nil {
				l.close()
				return n, err
			}
			l.fill(append(first.Refs, l.pages.Refs[1:]...))
			first.Close() // the number is another's soon
		}
		a.answer(p, l.table())
		a.receive(time.Second)
		l.close()
	}
	return n, nil
}

// swap has two control areas. All the time it publishes the one or the other, and changes the contents of their first pages.
func swap(end time.Time) (n int, err error) {
	var both [2]*agent
	for i := range both {
		if both[i], err = newAgent(); err != nil {
			return 0, err
		}
		defer both[i].close()
	}
	done := make(chan struct{})
	defer close(done)
	for _, a := range both {
		go func() { // two reads of a word return different values
			good := append([]byte(nil), a.mem[region.ControlTable:grant.PageBytes]...)
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				copy(a.mem[region.ControlTable:], good)
				a.mem[region.ControlTable+rand.IntN(64)] ^= byte(1 << rand.IntN(8))
				a.mem[region.ControlAlive]++
				a.mem[region.ControlAgent]++
				if i%256 == 0 {
					copy(a.mem[region.ControlTable:], good)
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	for ; time.Now().Before(end); n++ {
		a := both[n%2]
		port := both[rand.IntN(2)].channel.Port()
		if err := a.publish(strconv.Itoa(int(a.grant.Refs[0])), strconv.Itoa(int(port)), region.StoreReady); err != nil {
			return n, err
		}
		a.begin()
		a.ring()
	}
	return n, nil
}
