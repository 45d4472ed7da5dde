package api

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/guests"
)

// liveEvery is the period of the live view's lines.
const liveEvery = time.Second

// live sends the state of the host and then, each liveEvery, its changes. A line without a change is sent, too: a
// caller that receives none for some seconds has lost the daemon.
func (s *Server) live(ctx context.Context, out *stream) error {
	status := s.guests.Status()
	sent, err := s.latest.take(s.guests, 0)
	if err != nil {
		return err
	}
	first := control.Live{At: sent.at.UnixNano(), Role: callerOf(ctx).role, Status: &status, Accelerators: sent.accelerators, Domains: sent.domains}
	if err := out.send(first); err != nil {
		return err
	}
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		if err := out.flush(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		next, err := s.latest.take(s.guests, liveEvery*9/10)
		if err != nil {
			return err
		}
		line := next.changes
		if next.before != sent.number {
			if line, err = next.since(sent); err != nil {
				return err
			}
		}
		if err := out.sendLine(line); err != nil {
			return err
		}
		sent = next
	}
}

// hostState is the state of the host at one time. It is constant, and the callers of live share it with its changes, so
// that further callers cost little.
type hostState struct {
	at           time.Time
	accelerators []control.Accelerator
	domains      []control.Domain
	number       int    // from 1
	before       int    // number of the state that changes begins with
	changes      []byte // a line of the stream
}

// latestState holds the state that a caller of live took last. Its zero value has none.
type latestState struct {
	mu   sync.Mutex
	last *hostState
}

// take returns a state that is at most old: the last one, or a new one.
func (l *latestState) take(from guests.Requests, old time.Duration) (*hostState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, last := time.Now(), l.last
	if last == nil {
		last = &hostState{}
	} else if now.Sub(last.at) <= old {
		return last, nil
	}
	domains, err := from.Domains(control.DomainParams{})
	if err != nil {
		return nil, err
	}
	next := &hostState{at: now, accelerators: from.Accelerators(), domains: domains, number: last.number + 1, before: last.number}
	if next.changes, err = next.since(last); err != nil {
		return nil, err
	}
	l.last = next
	return next, nil
}

// since returns the line with the differences between an earlier state and s.
func (s *hostState) since(old *hostState) ([]byte, error) {
	line := control.Live{At: s.at.UnixNano()}
	line.Accelerators, _ = differences(old.accelerators, s.accelerators, func(a *control.Accelerator) string { return a.Name })
	line.Domains, line.Gone = differences(old.domains, s.domains, func(d *control.Domain) string { return d.Name })
	text, err := json.Marshal(line)
	return append(text, '\n'), err
}

// differences returns the objects of all that are new or have changed, and the names of the old ones that are gone.
func differences[T any](old, all []T, name func(*T) string) (changed []T, gone []string) {
	changed = []T{}
	before := make(map[string]*T, len(old))
	for i := range old {
		before[name(&old[i])] = &old[i]
	}
	for i := range all {
		if was := before[name(&all[i])]; was == nil || !reflect.DeepEqual(was, &all[i]) {
			changed = append(changed, all[i])
		}
		delete(before, name(&all[i]))
	}
	return changed, slices.Sorted(maps.Keys(before))
}
