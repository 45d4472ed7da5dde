package backend

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"pegasus/backend/control"
)

// journalSize is how many events are kept for later requests.
const journalSize = 256

// journal keeps the latest events and sends new ones to its followers.
type journal struct {
	mu        sync.Mutex
	latest    []control.Event
	followers map[chan control.Event]struct{}
}

func newJournal() *journal {
	return &journal{followers: make(map[chan control.Event]struct{})}
}

// note adds an event. A slow follower misses some.
func (j *journal) note(kind, domain, format string, args ...any) {
	j.add(control.Event{Time: time.Now(), Kind: kind, Domain: domain, Text: fmt.Sprintf(format, args...)})
}

func (j *journal) add(e control.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.latest) == journalSize {
		j.forget()
	}
	j.latest = append(j.latest, e)
	for f := range j.followers {
		select {
		case f <- e:
		default:
		}
	}
}

// forget drops the oldest event of the domain with the most events, so that one domain does not displace the others'
// events.
func (j *journal) forget() {
	most, count := j.latest[0].Domain, map[string]int{}
	for _, e := range j.latest {
		if count[e.Domain]++; count[e.Domain] > count[most] {
			most = e.Domain
		}
	}
	oldest := slices.IndexFunc(j.latest, func(e control.Event) bool { return e.Domain == most })
	j.latest = slices.Delete(j.latest, oldest, oldest+1)
}

// follow returns the latest events, a channel of later ones, and a function that closes the subscription.
func (j *journal) follow() (latest []control.Event, next <-chan control.Event, stop func()) {
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
