package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
	"pegasus/xenstore"
)

// scribble writes random data into a control area, and rings all the time.
func scribble(end time.Time) (n int, err error) {
	for time.Now().Before(end) {
		a, err := newAgent()
		if err != nil {
			return n, err
		}
		a.session(time.Now().Add(2 * time.Second))
		for again := time.Now().Add(time.Second); time.Now().Before(again) && time.Now().Before(end); n++ {
			part := a.mem
			if n%2 == 0 {
				part = part[:grant.PageBytes]
			}
			at := rand.IntN(len(part) - 64)
			crand.Read(part[at : at+1+rand.IntN(63)])
			if n%16 == 0 {
				a.ring()
			}
			if n%4096 == 0 { // a valid session, so that the host goes on reading
				a.begin()
			}
		}
		a.close()
	}
	return n, nil
}

// absurd writes impossible values into the XenStore.
func absurd(end time.Time) (n int, err error) {
	a, err := newAgent()
	if err != nil {
		return 0, err
	}
	defer a.close()
	words := []string{"0", "1", "8", "-1", "16777215", "16777216", "4294967295", "4294967296", "18446744073709551616", "0x10", "", " ", "\x00\xff",
		"ready", strings.Repeat("9", 1900), strconv.Itoa(int(a.grant.Refs[0])), strconv.Itoa(int(a.channel.Port()))}
	word := func() string { return words[rand.IntN(len(words))] }
	for ; time.Now().Before(end); n++ {
		state := region.StoreReady
		if n%7 == 0 {
			state = word()
		}
		if err := a.publish(word(), word(), state); err != nil && !errors.Is(err, xenstore.ErrQuota) {
			return n, err
		}
	}
	return n, nil
}

// write writes nodes as fast as the XenStore accepts writes, and makes and removes nodes.
func write(end time.Time) (n int, err error) {
	a, err := newAgent()
	if err != nil {
		return 0, err
	}
	defer a.close()
	ctx := context.Background()
	for ; time.Now().Before(end); n++ {
		path := region.StoreDir + "/" + []string{region.StoreState, region.StoreControl, region.StorePort, "other/" + strconv.Itoa(n%50)}[n%4]
		value := []string{"ready", "7", "9", "x"}[rand.IntN(4)]
		if err = a.store.Write(ctx, path, []byte(value)); err != nil && !errors.Is(err, xenstore.ErrQuota) {
			return n, err
		}
		if n%100 == 0 {
			a.store.Remove(ctx, region.StoreDir)
		}
	}
	return n, nil
}

// tables lends segments by invalid tables.
func tables(end time.Time) (n int, err error) {
	a, err := newAgent()
	if err != nil {
		return 0, err
	}
	defer a.close()
	t, err := grant.GrantPages(0, 4, true)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	mem, err := t.Map()
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(mem)
	few, err := grant.GrantPages(0, 64, true)
	if err != nil {
		return 0, err
	}
	defer few.Close()
	honest := func(i int) uint32 { return uint32(few.Refs[i%len(few.Refs)]) }
	fill := func(page, refs int, number func(i int) uint32, next uint32) {
		all := make([]uint32, refs)
		for i := range all {
			all[i] = number(i)
		}
		region.PutTable(mem[page*grant.PageBytes:][:grant.PageBytes], all, next)
	}
	const full = region.TableRefs
	one := func(refs int, number func(i int) uint32, next uint32) uint32 {
		fill(0, refs, number, next)
		return uint32(t.Refs[0])
	}
	lies := []func(pages int) (table uint32){
		func(int) uint32 { return one(full, honest, uint32(t.Refs[0])) }, // without end
		func(int) uint32 { // round and round
			fill(1, 1, honest, uint32(t.Refs[0]))
			return one(1, honest, uint32(t.Refs[1]))
		},
		func(pages int) uint32 { return one(pages, honest, 0) },                                                  // the same ones again and again
		func(pages int) uint32 { return one(pages, honest, uint32(t.Refs[0])) },                                  // enough, and more
		func(pages int) uint32 { return one(pages-1, honest, 0) },                                                // too few
		func(pages int) uint32 { return one(pages, func(i int) uint32 { return region.MaxRef - uint32(i) }, 0) }, // not granted
		func(pages int) uint32 { return one(pages, func(i int) uint32 { return 10000 + uint32(i) }, 0) },
		func(pages int) uint32 { return one(pages, func(i int) uint32 { return uint32(a.grant.Refs[i%5]) }, 0) }, // the control area
		func(pages int) uint32 { return one(pages, func(i int) uint32 { return 1 + uint32(i) }, 0) },             // the console's and the like
		func(int) uint32 { return one(0, honest, 0) },
		func(int) uint32 { crand.Read(mem); return uint32(t.Refs[0]) },
		func(int) uint32 { return region.MaxRef },
		func(int) uint32 { return uint32(a.grant.Refs[0]) },
		func(int) uint32 { return ^uint32(0) },
		func(int) uint32 { return 0 },
	}
	rand.Shuffle(len(lies), func(i, j int) { lies[i], lies[j] = lies[j], lies[i] })
	for ; time.Now().Before(end); n++ {
		if err := a.session(end); err != nil {
			return n, nil // until the end
		}
		if p, bytes, ok := a.ask(); ok {
			a.answer(p, lies[n%len(lies)](min(int(bytes/grant.PageBytes), full)))
			a.receive(500 * time.Millisecond)
		} else {
			a.begin()
			a.ring()
		}
	}
	return n, nil
}

// revoke lends correct segments, and revokes their grants while the host has them mapped.
func revoke(end time.Time) (n int, err error) {
	for time.Now().Before(end) {
		a, err := newAgent()
		if err != nil {
			return n, err
		}
		for round := 0; round < 5 && a.session(end) == nil; round++ {
			p, bytes, ok := a.ask()
			if !ok {
				break
			}
			l, err := lend(0, bytes, true)
			if err != nil {
				break
			}
			a.answer(p, l.table())
			if round%2 == 0 {
				a.receive(time.Second)
			}
			l.close()
			n++
			if round%2 == 1 {
				a.receive(200 * time.Millisecond)
			}
		}
		a.close() // also while it is mapped
	}
	return n, nil
}
