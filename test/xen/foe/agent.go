package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/grant"
	"pegasus/callbuf/region"
	"pegasus/xenstore"
)

// agent is a control area of the foe's own, which it publishes to Dom0 as an agent does.
type agent struct {
	store   *xenstore.Client
	grant   *grant.Grant
	channel *grant.Channel
	mem     []byte
	guest   *region.Guest
	last    uint32
}

func newAgent() (*agent, error) {
	store, err := xenstore.DialAgain(context.Background(), xenstore.Local())
	if err != nil {
		return nil, err
	}
	a := &agent{store: store}
	if a.grant, err = grant.GrantPages(0, region.ControlPages, true); err != nil {
		return nil, err
	}
	if a.mem, err = a.grant.Map(); err != nil {
		return nil, err
	}
	if a.channel, err = grant.OfferChannel(0); err != nil {
		return nil, err
	}
	var refs []uint32
	for _, r := range a.grant.Refs[1:] {
		refs = append(refs, uint32(r))
	}
	region.PutTable(a.mem[region.ControlTable:], refs, 0)
	a.guest = region.NewGuest(a.mem)
	a.begin()
	return a, a.publish(strconv.Itoa(int(a.grant.Refs[0])), strconv.Itoa(int(a.channel.Port())), region.StoreReady)
}

// begin requests a session.
func (a *agent) begin() {
	var b [8]byte
	rand.Read(b[:])
	a.guest.Begin(binary.LittleEndian.Uint64(b[:]) | 1)
}

// publish writes an agent's nodes into XenStore, with any values.
func (a *agent) publish(control, port, state string) error {
	ctx, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	return a.store.Update(ctx, func(tx *xenstore.Tx) error {
		for _, n := range []struct{ name, value string }{{region.StoreVersion, region.StoreVersion1}, {region.StoreControl, control}, {region.StorePort, port}, {region.StoreState, state}} {
			if err := tx.Write(ctx, region.StoreDir+"/"+n.name, []byte(n.value)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *agent) ring() {
	if raw, err := a.channel.SyscallConn(); err == nil {
		raw.Control(a.channel.Ring)
	}
}

func (a *agent) close() {
	a.channel.Close()
	a.grant.Close()
	a.store.Close()
}

// receive blocks for up to d until the hub sends a message. It reports false if none arrived, or if the ring is invalid.
func (a *agent) receive(d time.Duration) (m region.Message, ok bool) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		m, ok, err := a.guest.Receive()
		if err != nil {
			return m, false
		}
		if ok {
			return m, true
		}
	}
	return m, false
}

// session blocks until the hub answers, and requests a new session if the hub has ended the last one.
func (a *agent) session(end time.Time) error {
	for ; time.Now().Before(end); time.Sleep(time.Millisecond) {
		if a.guest.Answered() && !a.guest.Over() {
			return nil
		}
		if a.guest.Over() {
			a.begin()
			a.ring()
			for wait := time.Now().Add(2 * time.Second); !a.guest.Answered() && time.Now().Before(wait) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
	}
	return fmt.Errorf("the hub answers no more")
}

// ask announces a process, and returns the process and the size of the hub's request for a segment.
func (a *agent) ask() (process uint32, bytes uint64, ok bool) {
	a.last++
	hello := callbuf.Hello{Version: callbuf.Version, Features: callbuf.FeatureBell, MostBytes: 1 << 20}
	if !a.guest.Send(region.Message{Kind: region.Open, Process: a.last, Body: region.OpenBody(hello, 1)}) {
		return 0, 0, false
	}
	a.ring()
	m, ok := a.receive(2 * time.Second)
	if !ok || m.Kind != region.Need {
		return 0, 0, false
	}
	bytes, err := region.ParseNeed(m.Body)
	return m.Process, bytes, err == nil
}

// answer grants the segment of a table, without a check of the table.
func (a *agent) answer(process, table uint32) {
	a.guest.Send(region.Message{Kind: region.Grant, Process: process, Body: region.GrantBody(table)})
	a.ring()
}
