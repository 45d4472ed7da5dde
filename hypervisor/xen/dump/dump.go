// Package dump parses the hypervisor Xen's print of its schedulers' state, triggered by the key `r` on its console:
// the only source of the credit left under Credit, and of the next vCPU in each CPU's queue.
//
// It is text for people, of a debugging aid: releases may change it, and while it is printed the schedulers are
// locked, for milliseconds where the console is a serial port. So callers should request it at most a few times a
// second, and have to work without it as well.
//
// Callers: predictions of the hypervisor's scheduling, and tests of them, in Dom0.
//
// Trust boundary: the hypervisor is trusted, but the text may be incomplete or of another release.
package dump

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"pegasus/hypervisor/xen/trace"
)

// Dump is a parsed print.
type Dump struct {
	Now       int64  // ns since the hypervisor's boot, at the beginning of the print
	Scheduler string // the first pool's, by its short name, such as credit2
	VCPUs     []VCPU // the printed ones, in their last state
	Pools     []Pool
	CPUs      []CPU
	Queues    []Queue // of Credit2; Credit has queues by CPU
}

// VCPU is a vCPU's state. Credit prints only vCPUs that are active, run or wait, Credit2 all.
type VCPU struct {
	ID       trace.VCPU
	Priority int // of Credit, one of the constants
	Flags    uint32
	Earns    bool  // Credit
	CPU      int   // where it runs, waits or ran last
	Credit   int64 // Credit: in 100 µs; Credit2: in ns, for a vCPU of the largest weight. As last accounted
	Weight   int
	Cap      int
}

// Priorities of Credit.
const (
	Boost = 0 // just woken
	Under = -1
	Over  = -2 // has no credit left
)

// Pool is a CPU pool.
type Pool struct {
	Number  int
	Master  int   // Credit: the CPU that hands out credits
	Balance int64 // Credit: sum of the active vCPUs' credits after the last hand-out
	Handed  int   // Credit: number of hand-outs
}

// Pool returns a pool by its number.
func (d *Dump) Pool(number int) (*Pool, bool) {
	for i := range d.Pools {
		if d.Pools[i].Number == number {
			return &d.Pools[i], true
		}
	}
	return nil, false
}

// CPU is a CPU's state.
type CPU struct {
	Number  int
	Running trace.VCPU   // of domain trace.Idle if the CPU is idle
	Waiting []trace.VCPU // Credit: the first one is next
	Queue   int          // Credit2: its run queue
}

// Queue is a run queue of Credit2, for several CPUs.
type Queue struct {
	Number    int
	MaxWeight int
	Waiting   []trace.VCPU // the first one is next
}

// VCPU returns a vCPU by its ID.
func (d *Dump) VCPU(id trace.VCPU) (*VCPU, bool) {
	for i := range d.VCPUs {
		if d.VCPUs[i].ID == id {
			return &d.VCPUs[i], true
		}
	}
	return nil, false
}

// guestText is the prefix of a guest's output, which may interrupt a line of Xen's: that is printed in several parts.
var guestText = regexp.MustCompile(`\(d\d+\) `)

// The lines used. Others are ignored, or come from other output printed meanwhile.
var (
	nowLine       = regexp.MustCompile(`NOW=(\d+)`)
	schedulerLine = regexp.MustCompile(`Scheduler: .*\((\w+)\)`)
	cpuLine       = regexp.MustCompile(`CPU\[(\d+)\] (?:nr_run=\d+|runq=(\d+))`)
	queueLine     = regexp.MustCompile(`Runqueue (\d+):`)
	weightLine    = regexp.MustCompile(`max_weight +=+ (\d+)`)
	domainLine    = regexp.MustCompile(`Domain: (\d+) w (\d+) c (\d+)`)
	poolLine      = regexp.MustCompile(`Cpupool (\d+):`)
	masterLine    = regexp.MustCompile(`\smaster +=+ (\d+)`)
	balanceLine   = regexp.MustCompile(`credit balance +=+ (-?\d+)`)
	handedLine    = regexp.MustCompile(`runq_sort +=+ (\d+)`)
	earnLine      = regexp.MustCompile(`active units:`)
	waitingLine   = regexp.MustCompile(`RUNQ:`)
	vcpuLine      = regexp.MustCompile(`(run|\d+): \[(\d+)\.(\d+)\](?: pri=(-?\d+))? flags=([0-9a-f]+) cpu=(\d+)(?: credit=(-?\d+) \[w=(\d+)(?:,cap=(\d+))?\])?`)
)

// Parse parses console output. Of several dumps the last one counts.
func Parse(text string) (*Dump, error) {
	p := parser{queue: -1}
	for line := range strings.Lines(text) {
		p.line(line)
	}
	switch {
	case p.Now == 0:
		return nil, errors.New("the console of Xen has no line with NOW=: is its buffer too small (conring_size=128k)?")
	case p.Scheduler == "" || len(p.CPUs) == 0:
		return nil, errors.New("console: no CPUs behind NOW=: another program may have cleared it")
	}
	return &p.Dump, nil
}

// parser is the position in the output: the CPU or queue of the lines that follow.
type parser struct {
	Dump
	caps  map[uint16]int      // by domain
	some  map[trace.VCPU]bool // the active ones, as far as printed
	cpu   *CPU
	queue int // in Queues; -1: none
	waits bool
	earns bool
}

// number parses a match of 32 bits with a sign or without; 0 if it is too large.
func number(s string) int {
	n, err := strconv.ParseInt(s, 10, 33)
	if err != nil {
		return 0
	}
	return int(n)
}

func (p *parser) line(line string) {
	if at := guestText.FindStringIndex(line); at != nil {
		line = line[:at[0]]
	}
	if m := nowLine.FindStringSubmatch(line); m != nil {
		now, _ := strconv.ParseInt(m[1], 10, 64)
		*p = parser{queue: -1, Dump: Dump{Now: now}, caps: make(map[uint16]int), some: make(map[trace.VCPU]bool)}
		return
	}
	if p.Now == 0 {
		return
	}
	if m := vcpuLine.FindStringSubmatch(line); m != nil {
		p.vcpu(m)
	} else if m := schedulerLine.FindStringSubmatch(line); m != nil && p.Scheduler == "" {
		p.Scheduler = m[1]
	} else if m := cpuLine.FindStringSubmatch(line); m != nil {
		p.CPUs = append(p.CPUs, CPU{Number: number(m[1]), Running: trace.VCPU{Domain: trace.Idle, Number: uint16(number(m[1]))}, Queue: number(m[2])})
		p.cpu, p.waits, p.earns = &p.CPUs[len(p.CPUs)-1], m[2] == "", false
	} else if m := queueLine.FindStringSubmatch(line); m != nil {
		p.atQueue(number(m[1]))
	} else if m := weightLine.FindStringSubmatch(line); m != nil && p.queue >= 0 {
		p.Queues[p.queue].MaxWeight = number(m[1])
	} else if m := domainLine.FindStringSubmatch(line); m != nil {
		p.caps[uint16(number(m[1]))] = number(m[3])
		p.queue = -1
	} else if m := poolLine.FindStringSubmatch(line); m != nil {
		p.Pools = append(p.Pools, Pool{Number: number(m[1])})
	} else if len(p.Pools) > 0 && p.poolLine(&p.Pools[len(p.Pools)-1], line) {
	} else if earnLine.MatchString(line) {
		p.earns = true
	} else if waitingLine.MatchString(line) {
		p.cpu, p.waits = nil, true
	}
}

// poolLine parses a line of a pool.
func (p *parser) poolLine(pool *Pool, line string) bool {
	if m := masterLine.FindStringSubmatch(line); m != nil {
		pool.Master = number(m[1])
	} else if m := balanceLine.FindStringSubmatch(line); m != nil {
		pool.Balance = int64(number(m[1]))
	} else if m := handedLine.FindStringSubmatch(line); m != nil {
		pool.Handed = number(m[1])
	} else {
		return false
	}
	return true
}

// atQueue selects the queue of the following lines; each queue is printed twice.
func (p *parser) atQueue(n int) {
	p.cpu, p.waits = nil, false
	for p.queue = range p.Queues {
		if p.Queues[p.queue].Number == n {
			return
		}
	}
	p.Queues = append(p.Queues, Queue{Number: n})
	p.queue = len(p.Queues) - 1
}

func (p *parser) vcpu(m []string) {
	id := trace.VCPU{Domain: uint16(number(m[2])), Number: uint16(number(m[3]))}
	flags, _ := strconv.ParseUint(m[5], 16, 32)
	v := VCPU{ID: id, Priority: number(m[4]), Flags: uint32(flags), CPU: number(m[6]), Credit: int64(number(m[7])), Weight: number(m[8]), Cap: number(m[9])}
	if limit, ok := p.caps[id.Domain]; ok {
		v.Cap = limit
	}
	switch {
	case m[1] == "run" && p.cpu != nil:
		p.cpu.Running = id
	case m[1] != "run" && p.waits && id.Domain != trace.Idle:
		if p.cpu != nil {
			p.cpu.Waiting = append(p.cpu.Waiting, id)
		} else if p.queue >= 0 {
			p.Queues[p.queue].Waiting = append(p.Queues[p.queue].Waiting, id)
		}
	}
	if id.Domain == trace.Idle {
		return
	}
	if p.earns {
		p.some[id] = true
	}
	if m[7] == "" { // other output interrupted the line before its credit
		return
	}
	v.Earns = p.some[id]
	if old, ok := p.VCPU(id); ok {
		*old = v
		return
	}
	p.VCPUs = append(p.VCPUs, v)
}
