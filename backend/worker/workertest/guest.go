// Package workertest has the counterparts of a worker for its tests: a device, and what the guest's side needs.
//
// Callers: tests of backend/worker and backend/worker/session.
package workertest

import (
	"errors"
	"time"

	"pegasus/callbuf"
)

// SmallGeometry returns the geometry of a small segment.
func SmallGeometry() callbuf.Geometry {
	return callbuf.Geometry{RingSlots: 256, ReplySlots: 64, EventWords: 64, ReleaseWords: 16, ArenaBytes: 1 << 20}
}

// ErrStuck reports that a call was not answered in time.
var ErrStuck = errors.New("no answer")

// Patience returns an alive function that fails after a while.
func Patience() func() error {
	until := time.Now().Add(20 * time.Second)
	return func() error {
		if time.Now().After(until) {
			return ErrStuck
		}
		return nil
	}
}

// Appender is the arguments of a call.
type Appender interface{ Append([]byte) []byte }

// Payload returns the packet's payload for the arguments; nil means none.
func Payload(a Appender) []byte {
	if a == nil {
		return nil
	}
	return a.Append(nil)
}
