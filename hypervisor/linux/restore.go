package linux

import (
	"slices"
	"strconv"

	"pegasus/hypervisor/raised"
)

// PutBack writes into a cgroup what was set for it, if it still has what a daemon wrote
// that has died.
func PutBack(r raised.Record) (put bool, err error) {
	text, there, ours := setting(r.File)
	if !there || !ours {
		return false, nil // the machine is off
	}
	has, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !slices.Contains(r.Ours, has) {
		return false, nil
	}
	return true, groupWeight(r.File).Put(r.Set)
}
