package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// service reports the daemon's state to systemd: started, reloading, ending, and whether its scheduler loops make
// turns. Without systemd (no NOTIFY_SOCKET) it does nothing. Callers: one goroutine at a time for each method.
type service struct {
	send  func(state string)
	every time.Duration   // interval between two reports, half of the watchdog's limit
	turns func() []uint64 // turns of the scheduler loops so far, by accelerator
	state func() string   // for STATUS=
}

// statusEvery is the interval between two reports where systemd has no watchdog for this process.
const statusEvery = 10 * time.Second

func newService(log *slog.Logger, turns func() []uint64, state func() string) *service {
	every := statusEvery
	if limit, err := daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("systemd's watchdog", "err", err)
	} else if limit > 0 {
		every = limit / 2
	}
	return &service{every: every, turns: turns, state: state, send: func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("report to systemd", "err", err)
		}
	}}
}

// ready reports that guests can connect.
func (s *service) ready() { s.send(daemon.SdNotifyReady + "\nSTATUS=" + s.state()) }

// reload brackets a reload with the states that systemd expects.
func (s *service) reload(reload func()) {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	s.send(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/1000))
	defer s.ready()
	reload()
}

// run reports at each interval until ctx ends, and then that the daemon ends.
func (s *service) run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	last := s.turns()
	for {
		select {
		case <-tick.C:
			last = s.beat(last)
		case <-ctx.Done():
			s.send(daemon.SdNotifyStopping)
			return
		}
	}
}

// beat feeds the watchdog if every scheduler loop has made a turn since the previous beat, and returns the turns for
// the next one.
func (s *service) beat(last []uint64) []uint64 {
	turns := s.turns()
	for i := range turns {
		if turns[i] == last[i] {
			s.send(fmt.Sprintf("STATUS=scheduler loop %d of %d makes no turns; %s", i+1, len(turns), s.state()))
			return turns
		}
	}
	s.send(daemon.SdNotifyWatchdog + "\nSTATUS=" + s.state())
	return turns
}
