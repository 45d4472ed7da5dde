package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

const (
	socket = "/run/pegasus/guest.sock"
	region = "/run/pegasus-guest/region"
)

// errNothing is the error of an attack with calls that all return, but without an effect here.
var errNothing = errors.New("nothing came of it")

// pry tries all attacks, and prints each result. The last line is a count.
func pry(victim int) error {
	mine, err := enter(0)
	if err != nil {
		return err
	}
	others, err := enter(0)
	if err != nil {
		return err
	}
	tries, won := 0, 0
	for _, attacks := range []map[string]func() error{onProcess(victim), onPlaces(), onFile(mine, others), onAgent(mine)} {
		for name, attack := range attacks {
			tries++
			if err := attack(); err == nil {
				won++
				fmt.Println("BROKEN:", name)
			} else {
				fmt.Printf("%s: %v\n", name, err)
			}
		}
	}
	fmt.Printf("of %d attacks %d succeeded\n", tries, won)
	return nil
}

// guest is a process of the machine as the agent serves it, without a library in between.
type guest struct {
	segment *os.File
	bytes   int64
	worker  *net.UnixConn
}

func dial() (*net.UnixConn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err == nil {
		c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return c, err
}

func hello(features uint64) (c *net.UnixConn, err error) {
	if c, err = dial(); err == nil {
		_, err = c.Write(callbuf.Hello{Version: callbuf.Version, Features: features}.Append(nil))
	}
	return c, err
}

func enter(features uint64) (*guest, error) {
	c, err := hello(features)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buf, oob := make([]byte, callbuf.WelcomeBytes), make([]byte, 64)
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	w, err := callbuf.ParseWelcome(buf[:n])
	if err != nil || w.Result != 0 {
		return nil, fmt.Errorf("refused: %d %s %v", w.Result, w.Message, err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("no descriptors: %v", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 2 {
		return nil, fmt.Errorf("%d descriptors: %v", len(fds), err)
	}
	conn, err := net.FileConn(os.NewFile(uintptr(fds[1]), "worker"))
	if err != nil {
		return nil, err
	}
	return &guest{os.NewFile(uintptr(fds[0]), "segment"), int64(w.SegmentBytes), conn.(*net.UnixConn)}, nil
}

// opens tries to open a file.
func opens(path string, flags int) func() error {
	return func() error {
		f, err := os.OpenFile(path, flags, 0)
		if err == nil {
			f.Close()
		}
		return err
	}
}

// onProcess returns the attacks on another user's process.
func onProcess(victim int) map[string]func() error {
	proc := fmt.Sprintf("/proc/%d/", victim)
	return map[string]func() error{
		"ptrace": func() error { return unix.PtraceAttach(victim) },
		"seize":  func() error { return unix.PtraceSeize(victim) },
		"process_vm_readv": func() error {
			b := make([]byte, 8)
			_, err := unix.ProcessVMReadv(victim, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
			return err
		},
		"pidfd_getfd": func() error {
			fd, err := unix.PidfdOpen(victim, 0)
			if err != nil {
				return err
			}
			for n := range 16 {
				if _, err = unix.PidfdGetfd(fd, n, 0); err == nil {
					return nil
				}
			}
			return err
		},
		"kill":      func() error { return unix.Kill(victim, unix.SIGSTOP) },
		"mem":       opens(proc+"mem", os.O_RDONLY),
		"mem rw":    opens(proc+"mem", os.O_RDWR),
		"fd":        func() error { _, err := os.ReadDir(proc + "fd"); return err },
		"map_files": func() error { _, err := os.ReadDir(proc + "map_files"); return err },
		"cwd":       opens(proc+"cwd", unix.O_PATH|unix.O_DIRECTORY),
		"a descriptor": func() (err error) {
			for n := range 16 {
				if err = opens(fmt.Sprintf("%sfd/%d", proc, n), os.O_RDWR)(); err == nil {
					return nil
				}
			}
			return err
		},
	}
}

// onPlaces returns the attacks on files and devices that all users can name.
func onPlaces() map[string]func() error {
	all := map[string]func() error{
		"the directory":    func() error { _, err := os.ReadDir(region); return err },
		"the control area": opens(region+"/control", os.O_RDONLY),
		"by path":          opens(region+"/.", unix.O_PATH),
		"the record":       opens(region+".json", os.O_RDONLY),
		"a record":         func() error { return os.WriteFile(region+".json", nil, 0o600) },
		"the lock":         opens(region+".lock", os.O_RDWR),
		"another socket":   func() error { return os.Remove(socket) },
		"a socket beside":  func() error { return os.WriteFile(filepath.Dir(socket)+"/x", nil, 0o600) },
		"/dev/mem":         opens("/dev/mem", os.O_RDONLY),
		"unmount":          func() error { return unix.Unmount(region, unix.MNT_DETACH) },
		"the namespace":    func() error { return os.WriteFile("/sys/bus/nd/drivers/nd_pmem/unbind", []byte("pfn0.0"), 0) },
	}
	for _, glob := range []string{"/dev/pmem*", "/dev/vport*", "/dev/ndctl*", "/dev/nmem*"} {
		paths, _ := filepath.Glob(glob)
		for _, path := range paths {
			all[path] = opens(path, os.O_RDONLY)
			all[path+" rw"] = opens(path, os.O_RDWR)
		}
	}
	return all
}

// onFile returns the attacks with the descriptor that the agent hands out.
func onFile(g, second *guest) map[string]func() error {
	f := g.segment
	fd := int(f.Fd())
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	all := map[string]func() error{
		"beyond the end": func() error {
			b := make([]byte, 4096)
			n, err := unix.Pread(fd, b, g.bytes)
			if n == 0 && err == nil {
				return errNothing
			}
			return err
		},
		"mapped beyond the end": func() error { return touch(fd, g.bytes) },
		"mapped before":         func() error { return touch(fd, -4096) },
		"written beyond":        func() error { _, err := unix.Pwrite(fd, []byte("x"), g.bytes); return err },
		"shorter":               func() error { return unix.Ftruncate(fd, 4096) },
		"longer":                func() error { return unix.Ftruncate(fd, g.bytes+4096) },
		"what was there before": func() error { return old(fd, g.bytes) },
		"chmod":                 func() error { return unix.Fchmod(fd, 0o666) },
		"chown":                 func() error { return unix.Fchown(fd, os.Getuid(), -1) },
		"times":                 func() error { return unix.Futimes(fd, []unix.Timeval{{}, {}}) },
		"an attribute":          func() error { return unix.Fsetxattr(fd, "user.x", []byte("x"), 0) },
		"flags": func() error {
			n, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
			if err != nil {
				return err
			}
			return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, n&^0x10)
		},
		"a link": func() error { return unix.Linkat(fd, "", unix.AT_FDCWD, "/tmp/link", unix.AT_EMPTY_PATH) },
		"a link by proc": func() error {
			return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, "/tmp/link", unix.AT_SYMLINK_FOLLOW)
		},
		"a link beside": func() error {
			return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, region+"/link", unix.AT_SYMLINK_FOLLOW)
		},
		"upwards":            func() error { _, err := unix.Openat(fd, "..", unix.O_PATH, 0); return err },
		"upwards by proc":    opens(self+"/..", unix.O_PATH),
		"a handle":           func() error { return byHandle(fd) },
		"blocks of a second": func() error { return moveExtents(fd, int(second.segment.Fd())) },
		"clone":              func() error { return unix.IoctlFileClone(fd, int(second.segment.Fd())) },
		"freeze":             func() error { return unix.IoctlSetInt(fd, 0xc0045877, 0) },
		"shutdown":           func() error { return unix.IoctlSetPointerInt(fd, 0x8004587d, 2) },
		"another boot":       func() error { return unix.IoctlSetInt(fd, 0x6611, 0) },
		"a larger system":    func() error { return unix.IoctlSetPointerInt(fd, 0x40086610, 1<<20) },
	}
	for name, flags := range map[string]int{
		"reopened": os.O_RDWR, "reopened to read": os.O_RDONLY, "reopened to write": os.O_WRONLY,
		"reopened and cut off": os.O_RDWR | os.O_TRUNC, "reopened to append": os.O_WRONLY | os.O_APPEND,
	} {
		all[name] = opens(self, flags)
	}
	for name, mode := range map[string]uint32{
		"enlarged": 0, "a hole": unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, "zeros": unix.FALLOC_FL_ZERO_RANGE,
		"collapsed": unix.FALLOC_FL_COLLAPSE_RANGE, "inserted": unix.FALLOC_FL_INSERT_RANGE, "kept size": unix.FALLOC_FL_KEEP_SIZE,
	} {
		all[name] = func() error {
			at := int64(0)
			if mode == 0 || mode == unix.FALLOC_FL_KEEP_SIZE {
				at = g.bytes
			}
			return unix.Fallocate(fd, mode, at, 4096)
		}
	}
	return all
}

// touch maps a page and reads it.
func touch(fd int, at int64) (err error) {
	mem, err := unix.Mmap(fd, at, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	debug.SetPanicOnFault(true)
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	fmt.Println("reads", mem[0])
	return nil
}

// old searches the foe's segment for data of an earlier process: behind the header, and
// the worker's words, all bytes must be zero.
func old(fd int, bytes int64) error {
	mem, err := unix.Mmap(fd, 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	if len(bytesTrim(mem[4096:])) > 0 {
		return nil
	}
	return errNothing
}

func bytesTrim(b []byte) []byte { return bytes.TrimLeft(b, "\x00") }

// byHandle opens a file by its file handle; a directory's handle would serve, too.
func byHandle(fd int) error {
	h, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return err
	}
	_, err = unix.OpenByHandleAt(fd, h, os.O_RDWR)
	return err
}

// refused reads the answer to a hello, and returns an error if it is a refusal or missing.
func refused(c *net.UnixConn) error {
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, callbuf.WelcomeBytes)
	n, err := c.Read(b)
	if err != nil {
		return err
	}
	w, err := callbuf.ParseWelcome(b[:n])
	if err == nil && w.Result != 0 {
		err = fmt.Errorf("refused: %d %s", w.Result, w.Message)
	}
	return err
}

// onAgent returns the attacks by messages to the agent.
func onAgent(g *guest) map[string]func() error {
	answered := func(features uint64) func() error {
		return func() error {
			c, err := hello(features)
			if err != nil {
				return err
			}
			defer c.Close()
			return refused(c)
		}
	}
	return map[string]func() error{
		"another's worker": answered(callbuf.HelloBack),
		"messages of another number": func() error {
			for number := range byte(8) { // as if the agent copied messages into the ring unchecked
				for _, kind := range []byte{6, 3, 1, 7} {
					g.worker.Write([]byte{kind, 0, 0, 0, number, 0, 0, 0})
				}
			}
			g.worker.Write(bytes.Repeat([]byte{6, 0, 0, 0, 1, 0, 0, 0}, 64))
			return errNothing // the victim shows the effect
		},
		"nonsense": func() error {
			c, err := dial()
			if err != nil {
				return err
			}
			defer c.Close()
			c.Write(bytes.Repeat([]byte{0xff}, 60000))
			return refused(c)
		},
	}
}
