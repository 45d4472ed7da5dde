// Package hub is the process between the processes of one virtual machine and the daemon.
//
// A machine shares memory with the host, a Memory: a region under QEMU (hypervisor/kvm), pages that it grants under
// Xen (hypervisor/xen). Inside, an agent gives each process of the machine a part of it, which is the process's
// segment. The agent and the hub communicate through a control area in that memory (callbuf/region). For each process
// of the machine the hub connects to the domain's endpoint as a process of the host would, but provides the segment
// instead of getting one; then it forwards the few messages between process and worker, and each one's end to the
// other. Calls don't pass through it.
//
// Callers: `pegasusd hub`, a process of its own for each machine, so that memory which its machine corrupts ends no
// other machine's hub.
//
// Trust boundary: the daemon is trusted. The machine may write anything anywhere at any time: its input is copied
// once, checked, and used from the copy, and no part of the memory is ever lent twice.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	wire "pegasus/callbuf/region"
	"pegasus/hypervisor"
)

// Hub is the configuration of a hub.
type Hub struct {
	Memory Memory
	// Endpoint requests the path of the domain's socket from the daemon. A *Refusal means that there won't be one.
	Endpoint func() (string, error)
	Release  string // the hub's build
	Log      *slog.Logger

	patience time.Duration // set by tests, instead of lendTime
}

// maxProcesses bounds the processes that a machine can make its hub hold. The domain's own limit is smaller, as a
// rule. While maxOutbox messages wait for an agent, the hub reads none of its messages.
const (
	maxProcesses = wire.MaxProcesses
	maxOutbox    = 4 * maxProcesses
)

// inARow is the number of messages after which the hub naps in any case, so that a machine that sends without end
// gets a part of a processor, not all of it.
const inARow = wire.Slots

// sessionEvery is the shortest interval between sessions of a machine, which bounds the hub's work and log against
// any content of its memory.
const sessionEvery = time.Second

// openEvery is the shortest average interval between new processes.
const openEvery = 5 * time.Millisecond

// ErrWithdrawn reports that memory of the machine no longer exists, although the machine does.
var ErrWithdrawn = errors.New("memory that the machine shares with the host is gone: was the region's file truncated? Stop the machine and start it again")

// Run serves a machine until ctx ends, the machine is over, or it has withdrawn its memory. It closes the memory then.
func (h Hub) Run(ctx context.Context) (err error) {
	defer wire.CatchFault(&err, ErrWithdrawn)()
	defer h.Memory.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	port, events := h.listen(ctx), make(chan func(), 64)
	s := &session{
		hub: h, port: port, sleeper: bell.NewSleeper(port, events),
		events: events, processes: map[uint32]*process{}, generation: uint64(time.Now().UnixNano()),
	}
	defer func() {
		s.drop("the hub ends")
		for len(s.processes) > 0 {
			(<-s.events)()
		}
	}()
	if err := h.Memory.Watch(ctx, func() { s.post(ctx, func() {}) }); err != nil {
		return err
	}
	for row := 0; ctx.Err() == nil; {
		if s.step() {
			s.sleeper.Worked()
			if row++; row < inARow {
				continue
			}
		}
		row = 0
		if why := h.Memory.Over(); why != "" {
			h.Log.Info(why + ": ending")
			return nil
		}
		if s.sleeper.Sleep(ctx, s.words(), s.step) {
			s.rouse()
		}
	}
	return nil
}

// post runs do in the session's goroutine.
func (s *session) post(ctx context.Context, do func()) {
	select {
	case s.events <- do:
	case <-ctx.Done():
	}
}

// session is the hub's state of its machine. The goroutine of Run owns it; the goroutines of its processes send
// events to it.
type session struct {
	hub     Hub
	port    *bell.Port
	sleeper *bell.Sleeper

	control    *wire.Host // nil while the machine has no control area
	generation uint64
	began      time.Time // start of the last session
	paced      time.Time // the machine's messages wait until then, if that is in the future; see pace
	refused    uint64    // boot number of a session that was dropped for an invalid message

	processes map[uint32]*process
	outbox    []wire.Message // messages for the agent, which wait for room in its ring
	endpoint  endpoint
	events    chan func()

	complained time.Time // time of the last log line about a process that isn't served
	unsaid     int       // failures since then without a line
}

// step checks the control area, sends the waiting messages and handles at most one received message. It reports
// whether it did anything.
func (s *session) step() bool {
	s.find()
	if s.control == nil {
		return false
	}
	if !s.control.Intact() {
		s.drop("what the hub wrote has changed: the machine was put back to an earlier state?")
		s.control = nil
		return false
	}
	s.control.Beat()
	boot := s.control.Boot()
	if s.control.Deserted() {
		s.refused = boot
		s.drop("the agent has died, and nobody keeps its memory for another")
		return true
	}
	if s.control.Session() == 0 || boot != s.control.Session() {
		return s.begin(boot)
	}
	sent := s.flush()
	if len(s.outbox) > maxOutbox || s.paced.After(time.Now()) {
		return sent
	}
	m, ok, err := s.control.Receive()
	if err == nil && ok {
		err = s.obey(m)
	}
	if err != nil {
		s.refused = boot
		s.drop(err.Error())
	}
	return sent || ok
}

// find looks for the control area in the memory.
func (s *session) find() {
	if s.control != nil {
		if !s.hub.Memory.Same() {
			s.drop("the machine has another control area")
			s.control = nil
		}
		return
	}
	if len(s.processes) > 0 {
		return
	}
	area := s.hub.Memory.Take()
	if area == nil {
		return
	}
	s.control = wire.NewHost(area)
	s.port.Ring() // an agent that had a session with an earlier hub has lost it
	s.control.SetRelease(s.hub.Release)
}

// begin begins the session that the agent requests, once nothing is left of the previous one.
func (s *session) begin(boot uint64) bool {
	if s.control.Session() != 0 {
		s.drop("the agent begins anew")
		return true
	}
	if boot == 0 || boot == s.refused || len(s.processes) > 0 || time.Since(s.began) < sessionEvery {
		return false
	}
	s.began = time.Now()
	s.generation++
	s.outbox = nil
	s.control.Serve(boot, s.generation)
	s.port.Ring()
	s.hub.Log.Info("the machine's agent has come", "generation", s.generation, "agent", s.control.AgentRelease())
	return true
}

// drop ends a session and its processes' connections.
func (s *session) drop(why string) {
	if s.control == nil || s.control.Session() == 0 {
		return
	}
	s.control.Drop()
	s.port.Ring()
	s.outbox = nil
	s.hub.Log.Info("the machine's session ends", "why", why, "processes", len(s.processes))
	for _, p := range s.processes {
		p.hangUp()
	}
}

// sendToAgent enqueues a message to the agent. There are at most a few for each process.
func (s *session) sendToAgent(m wire.Message) {
	if s.control != nil && s.control.Session() != 0 {
		s.outbox = append(s.outbox, m)
	}
}

func (s *session) flush() (sent bool) {
	for len(s.outbox) > 0 && s.control.Send(s.outbox[0]) {
		s.outbox = s.outbox[1:]
		sent = true
	}
	if sent {
		s.sleeper.Notify(s.control)
	}
	return sent
}

var (
	errTwice   = errors.New("the agent used the number of a process twice")
	errTooMany = errors.New("the machine has more processes than a hub serves")
	errTalk    = errors.New("message not allowed in this state")
)

// obey carries out a message. It returns an error for one that no honest agent sends.
func (s *session) obey(m wire.Message) error {
	p := s.processes[m.Process]
	switch m.Kind {
	case wire.Open:
		hello, pid, err := wire.ParseOpen(m.Body)
		switch {
		case err != nil:
			return err
		case p != nil:
			return errTwice
		case len(s.processes) >= maxProcesses:
			return errTooMany
		}
		s.processes[m.Process] = s.start(m.Process, hello, pid)
		s.pace(time.Now())
		return nil
	case wire.Lend, wire.Grant:
		if p == nil {
			return nil // the process has ended meanwhile
		}
		if !p.asked {
			return errTalk
		}
		p.asked = false
		return s.lend(p, m)
	case wire.Data:
		if len(m.Body) > wire.MaxData {
			return errTalk
		}
		if p != nil {
			p.pass(m.Body)
		}
		return nil
	case wire.Close:
		if p != nil {
			p.hangUp()
		} else { // an agent that has started since may not have received it
			s.sendToAgent(wire.Message{Kind: wire.Gone, Process: m.Process})
		}
		return nil
	default:
		return errTalk
	}
}

// pace counts a new process: up to the maximum number may come at once, then one each openEvery. A machine beyond
// that has to wait.
func (s *session) pace(now time.Time) {
	if earliest := now.Add(-maxProcesses * openEvery); s.paced.Before(earliest) {
		s.paced = earliest
	}
	s.paced = s.paced.Add(openEvery)
}

// lend takes the machine's memory for a process's segment, and prepares the segment.
func (s *session) lend(p *process, m wire.Message) error {
	seg, err := s.hub.Memory.Lend(p.number, p.layout, m)
	var host *HostError
	switch {
	case errors.Is(err, ErrNoRoom):
		p.lent <- lent{err: s.hub.Memory.NoRoom(p.layout.SegmentBytes)}
		return nil
	case errors.As(err, &host):
		p.lent <- lent{err: host}
		return nil
	case err != nil:
		return err
	}
	p.header = seg.Header
	callbuf.FormatHeader(p.header, p.layout, s.generation, callbuf.FeatureApart|p.features)
	p.lent <- lent{Segment: seg, loan: hypervisor.Loan{Generation: s.generation, Features: p.features, Parts: seg.Parts}}
	return nil
}
