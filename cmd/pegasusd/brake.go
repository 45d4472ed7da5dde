package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// brakeBurst lines of one kind about one domain get into the log at once,
	brakeBurst = 256
	// and brakeRate a second after that.
	brakeRate = 16
	// brakeKinds bounds the kinds that are remembered.
	brakeKinds = 4096
)

// brake is a log handler that limits the lines that guests, callers of sockets and machines cause in the
// host's log, wherever the line is written: so many lines of each kind about each domain. A line's kind is
// its attribute of that name, else its message, which is a constant then. Dropped lines are counted, and the
// next line of their kind contains the number.
type brake struct {
	slog.Handler
	domain string // of With
	state  *brakeState
}

type brakeState struct {
	mu    sync.Mutex
	kinds map[brakeKind]*brakeRoom
	now   func() time.Time
}

type brakeKind struct{ domain, kind string }

// brakeRoom is the number of lines of a kind that may still be written.
type brakeRoom struct {
	lines int
	at    time.Time // when lines was computed
	lost  int
}

func newBrake(to slog.Handler) slog.Handler {
	return &brake{Handler: to, state: &brakeState{kinds: map[brakeKind]*brakeRoom{}, now: time.Now}}
}

func (b *brake) Handle(ctx context.Context, r slog.Record) error {
	k := brakeKind{b.domain, r.Message}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "domain":
			k.domain = a.Value.String()
		case "kind":
			k.kind = a.Value.String()
		}
		return true
	})
	ok, lost := b.state.take(k)
	if !ok {
		return nil
	}
	if lost > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", lost))
	}
	return b.Handler.Handle(ctx, r)
}

// take reports whether a line may be written, and if so how many of its kind were dropped before it.
func (s *brakeState) take(k brakeKind) (ok bool, lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	room := s.kinds[k]
	if room == nil {
		s.makeRoom(now)
		room = &brakeRoom{lines: brakeBurst, at: now}
		s.kinds[k] = room
	}
	room.refill(now)
	if room.lines == 0 {
		room.lost++
		return false, 0
	}
	room.lines--
	lost, room.lost = room.lost, 0
	return true, lost
}

func (r *brakeRoom) refill(now time.Time) {
	const each = time.Second / brakeRate
	if more := now.Sub(r.at) / each; more > 0 {
		r.at = r.at.Add(more * each)
		r.lines = int(min(time.Duration(r.lines)+more, brakeBurst))
	}
}

// makeRoom drops kinds once there are too many: those with a full budget and without dropped lines, otherwise
// any.
func (s *brakeState) makeRoom(now time.Time) {
	if len(s.kinds) < brakeKinds {
		return
	}
	for k, room := range s.kinds {
		if room.refill(now); room.lines == brakeBurst && room.lost == 0 {
			delete(s.kinds, k)
		}
	}
	for k := range s.kinds {
		if len(s.kinds) < brakeKinds {
			return
		}
		delete(s.kinds, k)
	}
}

func (b *brake) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := &brake{b.Handler.WithAttrs(attrs), b.domain, b.state}
	for _, a := range attrs {
		if a.Key == "domain" {
			next.domain = a.Value.String()
		}
	}
	return next
}

func (b *brake) WithGroup(name string) slog.Handler {
	return &brake{b.Handler.WithGroup(name), b.domain, b.state}
}
