package confine

import "golang.org/x/sys/unix"

var allowedHere = []uint32{unix.SYS_POLL, unix.SYS_EPOLL_WAIT}

// Older system calls with the functions of the C library's newer ones.
var allowedDriverHere = []uint32{unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_PIPE, unix.SYS_DUP2}
