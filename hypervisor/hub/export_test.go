package hub

import (
	"cmp"
	"time"
)

const MaxOutbox = maxOutbox

var Received = received

// Patient returns a hub with another lendTime; 0: the default.
func (h Hub) Patient(d time.Duration) Hub {
	h.patience = cmp.Or(d, h.patience)
	return h
}
