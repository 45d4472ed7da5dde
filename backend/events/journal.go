// Package events is the daemon's journal: the latest events for clients of the control socket, each also a line of the
// log. It limits the events that guests can cause.
//
// Callers: backend.
//
// Trust boundary: guests choose parts of the texts, which backend bounds and cleans.
package events

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"pegasus/backend/control"
)

// journalSize is how many events are kept for later requests.
const journalSize = 256

// Journal keeps the latest events, sends new ones to its followers, and logs them. Its methods may be called from any
// goroutine.
type Journal struct {
	log *slog.Logger

	mu        sync.Mutex
	latest    []control.Event
	counts    map[string]uint64 // of all events, by kind
	followers map[chan control.Event]struct{}
}

// counted returns counts of 0 for the kinds that alerts are about: Prometheus sees a kind's increase from the first event.
func counted() map[string]uint64 {
	return map[string]uint64{"crash": 0, "refused": 0, "fault": 0, "forged": 0, "warning": 0, "lost": 0, "objective": 0}
}

// NewJournal returns a journal without events.
func NewJournal(log *slog.Logger) *Journal {
	return &Journal{log: log, counts: counted(), followers: make(map[chan control.Event]struct{})}
}

// Note adds an event of a domain, or of none if domain is empty.
func (j *Journal) Note(kind, domain, format string, args ...any) {
	e := control.Event{Time: time.Now(), Kind: kind, Domain: domain, Text: fmt.Sprintf(format, args...)}
	j.add(e)
	j.log.Info(e.Text, "kind", kind, "domain", domain)
}

// NoteBy adds an event caused by a request of the control socket; by is nil for a signal.
func (j *Journal) NoteBy(by *control.Peer, kind, domain, format string, args ...any) {
	e := control.Event{Time: time.Now(), Kind: kind, Domain: domain, Text: fmt.Sprintf(format, args...)}
	attrs := []any{"kind", kind, "domain", domain}
	if by != nil {
		e.By = &control.Caller{UID: by.UID, PID: by.PID, Remote: by.Remote}
		if by.Remote != "" {
			attrs = append(attrs, "remote", by.Remote)
		} else {
			attrs = append(attrs, "uid", by.UID, "pid", by.PID)
		}
	}
	j.add(e)
	j.log.Info(e.Text, attrs...)
}

// NoteLimited adds an event that a domain's guests caused, unless the domain's limit rejects it.
func (j *Journal) NoteLimited(limit *RateLimiter, kind, domain, format string, args ...any) {
	ok, dropped := limit.allow(time.Now())
	if dropped > 0 {
		j.Note("lost", domain, "left out here: %s that its guests caused", control.Count(int(dropped), "event"))
	}
	if ok {
		j.Note(kind, domain, format, args...)
	}
}

// add keeps an event and sends it to the followers. A slow follower misses some.
func (j *Journal) add(e control.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.latest) == journalSize {
		j.forget()
	}
	j.latest = append(j.latest, e)
	j.counts[e.Kind]++
	for f := range j.followers {
		select {
		case f <- e:
		default:
		}
	}
}

// forget drops the oldest event of the domain with the most events, so that one domain does not displace the others'
// events.
func (j *Journal) forget() {
	most, count := j.latest[0].Domain, map[string]int{}
	for _, e := range j.latest {
		if count[e.Domain]++; count[e.Domain] > count[most] {
			most = e.Domain
		}
	}
	oldest := slices.IndexFunc(j.latest, func(e control.Event) bool { return e.Domain == most })
	j.latest = slices.Delete(j.latest, oldest, oldest+1)
}

// Counts returns how many events of each kind were added.
func (j *Journal) Counts() map[string]uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.counts)
}

// Follow returns the latest events, a channel of later ones, and a function that closes the subscription.
func (j *Journal) Follow() (latest []control.Event, next <-chan control.Event, stop func()) {
	ch := make(chan control.Event, journalSize)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.followers[ch] = struct{}{}
	return append(latest, j.latest...), ch, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.followers, ch)
	}
}
