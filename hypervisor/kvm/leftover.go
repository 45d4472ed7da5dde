package kvm

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// leftover is the region of a machine that is off.
type leftover struct {
	inode uint64
	since time.Time // when the machine was first seen off
}

// leftTime is how long a machine has to be off until its region counts as left behind. A start of the machine creates
// its region anew, and so restarts that time.
const leftTime = 10 * time.Second

// sweep removes the region of a machine that has been off for leftTime: the hook that removes it was missed. The
// region's hub notices, and ends.
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
		return // another machine of that name, of which we have no report
	}
	k.Log.Warn("removing the files of a machine that is off", "region", path)
	if err := RemoveRegion(path); err != nil {
		k.Log.Warn("remove a region", "err", err)
	}
}
