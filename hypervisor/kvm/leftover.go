package kvm

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// leftover is a region whose machine is off.
type leftover struct {
	inode uint64
	since time.Time // when that was first seen
}

// leftTime is for how long a machine has to be off until its region is taken for left
// behind. Who starts a machine makes its region anew, and begins that time, too.
const leftTime = 10 * time.Second

// sweep removes the region of a machine that has been off for long: the hook that would
// have was away. Its hub sees that, and ends what it serves.
func (k Keeper) sweep(path string, e fs.DirEntry) {
	var st unix.Stat_t
	if k.Off == nil || k.Valid(e.Name()) != nil || !k.Off(e.Name()) || unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		delete(k.left, path)
		return
	}
	if was, ok := k.left[path]; !ok || was.inode != st.Ino {
		k.left[path] = leftover{st.Ino, time.Now()}
		return
	} else if time.Since(was.since) < leftTime {
		return
	}
	delete(k.left, path)
	if UsedBy(path) != 0 {
		return // a machine of that name, of whom we don't know
	}
	k.Log.Warn("removing what was left of a machine that is off", "region", path)
	if err := RemoveRegion(path); err != nil {
		k.Log.Warn("remove a region", "err", err)
	}
}
