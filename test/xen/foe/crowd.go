package main

import (
	"math/rand/v2"
	"strconv"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
)

// crowd announces as many processes as a hub accepts, and more, with random hellos, and ignores the hub's answers.
func crowd(end time.Time) (n int, err error) {
	a, err := newAgent()
	if err != nil {
		return 0, err
	}
	defer a.close()
	for time.Now().Before(end) {
		if a.session(end) != nil {
			return n, nil
		}
		for i := 0; time.Now().Before(end) && !a.guest.Over(); {
			a.last++
			hello := callbuf.Hello{Version: callbuf.Version, Features: rand.Uint64() &^ 1, MostBytes: rand.Uint64() >> rand.IntN(64)}
			if !a.guest.Send(region.Message{Kind: region.Open, Process: a.last, Body: region.OpenBody(hello, rand.Uint32())}) {
				a.ring()
				time.Sleep(time.Millisecond)
				continue
			}
			n++
			if i++; i > region.MaxProcesses/2 && i%2 == 0 { // some of the announced processes end
				a.guest.Send(region.Message{Kind: region.Close, Process: a.last})
			}
			if i%3 == 0 {
				a.receive(time.Millisecond)
			}
		}
	}
	return n, nil
}

// chatter gets workers for its processes, and sends messages for these workers without end.
func chatter(end time.Time) (n int, err error) {
	a, err := newAgent()
	if err != nil {
		return 0, err
	}
	defer a.close()
	for time.Now().Before(end) {
		if a.session(end) != nil {
			return n, nil
		}
		p, bytes, ok := a.ask()
		if !ok {
			a.begin()
			a.ring()
			continue
		}
		l, err := lend(0, bytes, true)
		if err != nil {
			return n, err
		}
		a.answer(p, l.table())
		a.receive(5 * time.Second)
		said := make([]byte, region.MaxData)
		for again := time.Now().Add(3 * time.Second); time.Now().Before(again) && time.Now().Before(end) && !a.guest.Over(); {
			if a.guest.Send(region.Message{Kind: region.Data, Process: p, Body: said[:rand.IntN(len(said))]}) {
				n++
			}
			a.ring()
		}
		if rand.IntN(2) == 0 {
			a.guest.Send(region.Message{Kind: region.Close, Process: p})
		}
		l.close()
	}
	return n, nil
}

// ports offers channels that Dom0 may not bind, or that are closed before Dom0 binds them, and rings without end.
func ports(end time.Time) (n int, err error) {
	for ; time.Now().Before(end); n++ {
		a, err := newAgent()
		if err != nil {
			return n, err
		}
		control := strconv.Itoa(int(a.grant.Refs[0]))
		other, err := grant.OfferChannel(grant.Domain(1))
		if err != nil {
			a.close()
			return n, err
		}
		shut, err := grant.OfferChannel(0)
		if err != nil {
			return n, err
		}
		for _, port := range []int{1, 2, 3, int(other.Port()), int(shut.Port()), 4095, 131071} { // the first are XenStore's and the console's
			a.publish(control, strconv.Itoa(port), region.StoreReady)
			shut.Close()
		}
		a.publish(control, strconv.Itoa(int(a.channel.Port())), region.StoreReady)
		for again := time.Now().Add(3 * time.Second); time.Now().Before(again) && time.Now().Before(end); {
			a.ring()
		}
		other.Close()
		a.close()
	}
	return n, nil
}
