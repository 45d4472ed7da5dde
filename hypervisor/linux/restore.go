package linux

import (
	"errors"
	"slices"

	"pegasus/hypervisor/weightjournal"
)

// PutBack restores a cgroup's configured weight, if it still has a weight that a dead daemon wrote.
func PutBack(r weightjournal.Record) (put bool, err error) {
	w := groupWeight(r.File)
	has, err := w.Get()
	switch {
	case errors.Is(err, weightjournal.ErrOff), errors.Is(err, errGuests), errors.Is(err, errIdle):
		return false, nil // it has no weight any more, or one that another program set
	case err != nil:
		return false, err
	case !slices.Contains(r.Ours, has):
		return false, nil
	}
	return true, w.Put(r.Set)
}
