package main

import (
	"errors"
	"fmt"
	"time"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
)

// flood takes the place of the agent, which has been killed, and opens and closes processes as
// fast as the hub receives the messages.
func flood(seconds int) error {
	control := mapFile(region + "/control")
	if control == nil {
		return errors.New("no control area")
	}
	g := wire.NewGuest(control)
	g.Begin(uint64(time.Now().UnixNano()))
	for end := time.Now().Add(30 * time.Second); !g.Answered(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("the host doesn't answer")
		}
	}
	open := wire.OpenBody(callbuf.Hello{Version: callbuf.Version}, 1)
	opened, gone := uint32(0), uint32(0)
	listen := func() {
		for m, ok, _ := g.Receive(); ok; m, ok, _ = g.Receive() {
			if m.Kind == wire.Gone {
				gone++
			}
		}
	}
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end) && !g.Over(); {
		listen()
		if opened-gone < 100 && g.Send(wire.Message{Kind: wire.Open, Process: opened, Body: open}) {
			for !g.Send(wire.Message{Kind: wire.Close, Process: opened}) && !g.Over() {
				listen()
			}
			opened++
		}
	}
	fmt.Printf("opened %d, of which %d have gone, over: %v\n", opened, gone, g.Over())
	return nil
}
