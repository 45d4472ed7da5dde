package main

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/cpus"
	"pegasus/hypervisor/xen/privcmd"
	"pegasus/vcpu"
)

// console is the hypervisor's, of releases 4.17 to 4.20.
type console struct {
	calls *privcmd.Hypercalls
	index uint32
}

const (
	opSysctl    = 35
	sysctl      = 0x15
	readConsole = 1
	debugKeys   = 7
)

// press has the hypervisor do what a key makes it do, and returns what it printed.
func (c *console) press(key byte) (string, error) {
	le := binary.LittleEndian
	mem, at := c.calls.Memory(), c.calls.Address()
	for _, err := c.read(); ; _, err = c.read() { // what was there before
		if err != nil {
			return "", err
		}
		if le.Uint32(mem[24:]) == 0 {
			break
		}
	}
	clear(mem[:4096])
	le.PutUint32(mem, debugKeys)
	le.PutUint32(mem[4:], sysctl)
	mem[4096] = key
	le.PutUint64(mem[8:], at+4096)
	le.PutUint32(mem[16:], 1)
	if _, err := c.calls.Call(opSysctl, at); err != nil {
		return "", err
	}
	return c.read()
}

func (c *console) read() (string, error) {
	le := binary.LittleEndian
	mem, at := c.calls.Memory(), c.calls.Address()
	clear(mem[:4096])
	le.PutUint32(mem, readConsole)
	le.PutUint32(mem[4:], sysctl)
	mem[9] = 1 // from an index on
	le.PutUint32(mem[12:], c.index)
	le.PutUint64(mem[16:], at+4096)
	le.PutUint32(mem[24:], uint32(len(mem)-4096))
	_, err := c.calls.Call(opSysctl, at)
	c.index = le.Uint32(mem[12:])
	return string(mem[4096 : 4096+le.Uint32(mem[24:])]), err
}

// creditLine is a vCPU's, by the key r: under Credit in credits, under Credit2 in ns.
var creditLine = regexp.MustCompile(`\[(\d+)\.0\](?: pri=-?\d+)? flags=[0-9a-f]+ cpu=\d+ credit=(-?\d+)`)

// compareCredits looks every 30 ms as the daemon does, and now and then prints beside what it saw
// what the hypervisor prints of the first vCPU of each domain; and of each look how much of the
// time since the last one that was to run, and how much it ran, in ‰.
func compareCredits(calls *privcmd.Hypercalls, x *control.Xen, c *cpus.CPUs, times int, of []hypervisor.Guests) error {
	const period, often = 30 * time.Millisecond, 6
	con := &console{calls: calls}
	unit := int64(1)
	pools, err := x.Pools()
	if err != nil {
		return err
	}
	if pools[len(pools)-1].Scheduler == control.Credit2 {
		unit = 100000
	}
	var seen []vcpu.Schedule
	var before []hypervisor.Spent
	var at time.Time
	for n := range times {
		for k := range often {
			time.Sleep(period)
			next := seen
			seen, _ = c.Look(monotonic(), period, of)
			spent, now := c.Spent(of), time.Now()
			for i := range next {
				if k > 0 { // not while it was printed
					fmt.Printf("ran %d %s %d %d\n", n, of[i].Domain, next[i].VCPUs[0].Next, 1000*(spent[i].Ran-before[i].Ran)/now.Sub(at))
				}
			}
			before, at = spent, now
		}
		text, err := con.press('r')
		if err != nil {
			return err
		}
		for i, s := range seen {
			for _, m := range creditLine.FindAllStringSubmatch(text, -1) {
				if m[1] == of[i].Domain {
					credit, err := strconv.ParseInt(m[2], 10, 64)
					if err != nil {
						return err
					}
					fmt.Printf("credit %d %s %d %d\n", n, m[1], s.Remaining, credit/unit)
					break
				}
			}
		}
	}
	return nil
}
