package confine

import (
	"slices"

	"golang.org/x/sys/unix"
)

// allowed are the system calls of a serving worker: the Go runtime's, memory, futexes, and operations on open
// descriptors. None shrinks a file that the daemon has mapped: access to a missing page would end the daemon with
// SIGBUS.
var allowed = append([]uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK,
	unix.SYS_MUNMAP, unix.SYS_MADVISE,
	unix.SYS_MEMFD_CREATE,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_RESTART_SYSCALL, unix.SYS_MEMBARRIER,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PPOLL,
	unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SHUTDOWN, unix.SYS_ACCEPT4,
	unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
}, allowedHere...)

const (
	// Offsets in struct seccomp_data.
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16

	deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	allow = unix.SECCOMP_RET_ALLOW
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func ret(verdict uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict}
}

// jump skips yes instructions if the accumulator compares to k, else no.
func jump(how uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

// onlyIf allows a system call if argument arg has some of these bits set in its lower half, or, for set = false, none.
func onlyIf(number uint32, arg int, bits uint32, set bool) []unix.SockFilter {
	yes, no := deny, uint32(allow)
	if set {
		yes, no = no, yes
	}
	return []unix.SockFilter{
		jump(unix.BPF_JEQ, number, 0, 4),
		load(dataArgs + uint32(arg)*8), // little-endian: the lower half
		jump(unix.BPF_JSET, bits, 0, 1),
		ret(yes),
		ret(no),
	}
}

// equals allows a system call if an argument's lower half is one of these. The kernel reads only that half of the
// arguments for which it is used, pids and commands.
func equals(number uint32, arg int, of ...uint32) []unix.SockFilter {
	return either(number, arg, of, allow, deny)
}

// differs allows a system call unless an argument's lower half is one of these.
func differs(number uint32, arg int, of ...uint32) []unix.SockFilter {
	return either(number, arg, of, deny, allow)
}

// either returns the verdict yes for a system call if an argument's lower half is one of these, else no.
func either(number uint32, arg int, of []uint32, yes, no uint32) []unix.SockFilter {
	n := uint8(len(of))
	p := []unix.SockFilter{jump(unix.BPF_JEQ, number, 0, n+3), load(dataArgs + uint32(arg)*8)}
	for i, v := range of {
		p = append(p, jump(unix.BPF_JEQ, v, n-uint8(i), 0))
	}
	return append(p, ret(no), ret(yes))
}

// allowedDriver are the additional system calls of a driver in this process: it opens files and devices, issues ioctls,
// reads /proc and /sys, and listens at a socket without a file.
var allowedDriver = append([]uint32{
	unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_OPENAT, unix.SYS_READLINKAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETDENTS64,
	unix.SYS_MREMAP, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_UNAME,
	unix.SYS_FSTATFS, unix.SYS_STATFS, unix.SYS_GETCWD, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MLOCK, unix.SYS_MUNLOCK, unix.SYS_PRCTL,
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER, unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_GETPRIORITY,
	unix.SYS_GET_MEMPOLICY, unix.SYS_MBIND, unix.SYS_CLOCK_GETRES, unix.SYS_SYSINFO, unix.SYS_GETRUSAGE, unix.SYS_PIPE2,
	unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_PREADV, unix.SYS_READV, unix.SYS_SENDMMSG, unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME,
}, allowedDriverHere...)

// ownerCommands make the kernel send a signal to the named process when a descriptor becomes ready.
var ownerCommands = []uint32{unix.F_SETOWN, fSetSig, fSetOwnEx}

// lockCommands take file locks: a process could take all slots of the page that all workers of an accelerator share.
var lockCommands = []uint32{unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_SETLK, unix.F_OFD_SETLKW}

// These are the same on all architectures with a filter.
const (
	fSetSig   = 10 // F_SETSIG
	fSetOwnEx = 15 // F_SETOWN_EX
	fioSetOwn = 0x8901
	siocSPGrp = 0x8902
)

// seccompProgram returns the filter of the worker with a process id. It allows new threads but no new processes;
// mappings that are not executable; signals to the worker's own threads, and kill only with signal 0.
func seccompProgram(arch uint32, driver bool, pid int) []unix.SockFilter {
	p := []unix.SockFilter{
		load(dataArch),
		jump(unix.BPF_JEQ, arch, 1, 0),
		ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(dataNumber),
	}
	all := allowed
	if driver {
		all = append(allowed[:len(allowed):len(allowed)], allowedDriver...)
	}
	for _, n := range all {
		p = append(p, jump(unix.BPF_JEQ, n, 0, 1), ret(allow))
	}
	// A C library that gets ENOSYS from clone3 uses clone, whose flags the filter can read.
	p = append(p, jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), ret(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	p = append(p, onlyIf(unix.SYS_CLONE, 0, unix.CLONE_THREAD, true)...)
	p = append(p, onlyIf(unix.SYS_MMAP, 2, unix.PROT_EXEC, false)...)
	p = append(p, onlyIf(unix.SYS_MPROTECT, 2, unix.PROT_EXEC, false)...)
	p = append(p, equals(unix.SYS_KILL, 1, 0)...)
	p = append(p, equals(unix.SYS_TGKILL, 0, uint32(pid))...) // Go's runtime interrupts threads
	p = append(p, equals(unix.SYS_FALLOCATE, 1, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE)...)
	commands := ownerCommands
	if !driver {
		commands = slices.Concat(lockCommands, ownerCommands)
	}
	p = append(p, differs(unix.SYS_FCNTL, 1, commands...)...)
	if driver {
		p = append(p, differs(unix.SYS_IOCTL, 1, fioSetOwn, siocSPGrp)...)
		p = append(p, equals(unix.SYS_PRLIMIT64, 0, 0, uint32(pid))...)
	}
	p = append(p, equals(unix.SYS_PRCTL, 0, unix.PR_SET_VMA, unix.PR_SET_TIMERSLACK)...)
	return append(p, ret(deny))
}
