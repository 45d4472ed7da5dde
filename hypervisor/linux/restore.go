package linux

import (
	"errors"
	"slices"

	"pegasus/hypervisor/raised"
)

// PutBack writes into a cgroup what was set for it, if it still has what a daemon wrote
// that has died.
func PutBack(r raised.Record) (put bool, err error) {
	w := groupWeight(r.File)
	has, err := w.Get()
	switch {
	case errors.Is(err, raised.ErrOff), errors.Is(err, errGuests), errors.Is(err, errIdle):
		return false, nil // it has none any more, or what others have set
	case err != nil:
		return false, err
	case !slices.Contains(r.Ours, has):
		return false, nil
	}
	return true, w.Put(r.Set)
}
