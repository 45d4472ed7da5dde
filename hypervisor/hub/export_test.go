package hub

import (
	"cmp"
	"time"
)

const MaxOutbox = maxOutbox

var Received = received

// Patient is a hub that waits for so long until a machine lends; 0: as long as always.
func (h Hub) Patient(d time.Duration) Hub {
	h.patience = cmp.Or(d, h.patience)
	return h
}
