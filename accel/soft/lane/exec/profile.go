package exec

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Profile collects the cost of the launches of one kernel, by line of the PTX. The executions of a line and the lanes
// that took part are counted. The time is measured for one block of code in about sampleEvery, chosen at random, so
// that no loop can be in step with the sampling.
type Profile struct {
	mu    sync.Mutex
	lines map[int]*LineCost
}

// LineCost is the cost of a line.
type LineCost struct {
	Line        int
	Time        time.Duration // in the measured blocks
	Runs, Lanes uint64        // executions by a group, and lanes that took part in them
}

const (
	sampleEvery = 16
	// longest caps the measured time of one instruction: a longer one was probably preempted.
	longest = time.Millisecond
	// maxLines bounds the number of separately counted lines of a kernel.
	maxLines = 1 << 14
)

// Lines returns the lines that were executed, the hottest first.
func (p *Profile) Lines() (all []LineCost) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.lines {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b LineCost) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Lanes, a.Lanes), cmp.Compare(a.Line, b.Line))
	})
	return all
}

// profiler counts and measures for one worker.
type profiler struct {
	blocks []blockProfile
	wait   int // blocks until the next one that is measured
	clock  time.Duration

	ending *time.Duration // of the block that was measured last, until the next begins
	ended  time.Time      // when its instructions had
}

type blockProfile struct {
	runs, lanes uint64
	times       []time.Duration // of its instructions, and of its ending
}

func newProfiler(p *Program) *profiler {
	s := &profiler{blocks: make([]blockProfile, len(p.blocks)), wait: 1, clock: longest}
	for i := range s.blocks {
		s.blocks[i].times = make([]time.Duration, len(p.blocks[i].code)+1)
	}
	for range 100 { // the cost of reading the clock
		s.clock = min(s.clock, time.Since(time.Now()))
	}
	return s
}

// execute runs the instructions of a block from number at on. It returns the last
// one's number, if it failed.
func (s *profiler) execute(g *group, index int32, at int) int {
	b, p := &g.w.prog.blocks[index], &s.blocks[index]
	s.close()
	if at == 0 { // not again after threads have waited within it
		p.runs++
		p.lanes += uint64(g.act.m.count())
	}
	s.wait--
	measured := s.wait == 0
	var last time.Time
	if measured {
		s.wait = 1 + rand.IntN(2*sampleEvery-1)
		last = time.Now()
	}
	for i := at; i < len(b.code); i++ {
		in := &b.code[i]
		in.exec(g, in)
		if measured {
			now := time.Now()
			s.add(&p.times[i], now.Sub(last))
			last = now
		}
		if g.fault != nil {
			return i
		}
	}
	if measured {
		s.ending, s.ended = &p.times[len(b.code)], last
	}
	return len(b.code)
}

// close ends the measurement of a block's ending, and of the work until the next block started.
func (s *profiler) close() {
	if s.ending != nil {
		s.add(s.ending, time.Since(s.ended))
		s.ending = nil
	}
}

func (s *profiler) add(to *time.Duration, d time.Duration) {
	*to += min(max(d-s.clock, 0), longest)
}

// flush adds the collected counts to the profile, and resets them.
func (s *profiler) flush(to *Profile, p *Program) {
	s.close()
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.lines == nil {
		to.lines = map[int]*LineCost{}
	}
	for i := range s.blocks {
		if s.blocks[i].runs > 0 {
			s.blocks[i].flush(to, &p.blocks[i])
		}
	}
}

// flush counts a line once a run, however many instructions it was lowered to.
func (s *blockProfile) flush(to *Profile, b *block) {
	last := 0
	for i := range s.times {
		line := int(b.Line)
		if i < len(b.code) {
			line = int(b.code[i].Line)
		}
		if line == 0 { // code that only leads to the next block
			line = last
		}
		if line == 0 {
			continue
		}
		c := to.lines[line]
		if c == nil && len(to.lines) >= maxLines {
			continue
		}
		if c == nil {
			c = &LineCost{Line: line}
			to.lines[line] = c
		}
		c.Time += s.times[i]
		if line != last {
			c.Runs, c.Lanes = c.Runs+s.runs, c.Lanes+s.lanes
		}
		last, s.times[i] = line, 0
	}
	s.runs, s.lanes = 0, 0
}
