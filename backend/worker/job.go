package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

// The daemon and a worker exchange packets of JSON over a SOCK_SEQPACKET socket, which is the worker's descriptor 3.
// The daemon sends one Job with its files. The worker reports Serving when guest and worker have agreed on addresses
// and the device is open, and Ended, with the reason, before it ends. The daemon may send Orders. If the daemon ends,
// the worker continues, and a new daemon finds it at its Listener: a process of root or of the worker's own user that
// connects there receives the Job and the files that a daemon needs, and then replaces the old daemon.

// Accelerator describes the device to open, as configured.
type Accelerator struct {
	Name          string
	Type          string
	Cores         int
	Memory        uint64
	KernelTimeout time.Duration
	RefusePTX     string // as in configs.Accelerator
	Device        string `json:",omitempty"` // name of one of the driver's devices
	Library       string `json:",omitempty"` // path of the driver
	Context       uint64 `json:",omitempty"` // bytes of memory that a context of the driver occupies itself
}

// Share is a domain's share of its accelerator's memory.
type Share struct {
	Guarantee uint64 // bytes that other domains cannot take; 0: none
	Priority  int    // memory of a higher priority is evicted later
}

// Job describes a worker's task.
type Job struct {
	ID          uint64 // of the worker, unique on this host
	Domain      string
	Share       Share
	Accelerator Accelerator
	Generation  uint64 // of the segment
	Features    uint64 // of the segment
	Geometry    callbuf.Geometry
	Parts       callbuf.Extents `json:",omitempty"` // the segment's extents in the file Segment; none: the file's beginning
	Slot        int             // in the gate page
	Slice       int             // of the device window
	DeviceBytes uint64          // of the slice
	GuestPID    int             // 0 if the guest is no process of this host
	UID, GID    int             // identity to assume after the set-up; 0: none
	LogLevel    string          // as in slog
	SpinTime    time.Duration   // how long the worker and its guest may poll before they sleep; 0: not at all

	// The optional files that come with it, in the order of Files; SendJob fills them in.
	HasGuestProcess, HasListener bool
	Hardware                     int
}

// parts returns the segment's extents in its file.
func (j *Job) parts(l callbuf.Layout) callbuf.Extents {
	if len(j.Parts) == 0 {
		return callbuf.Whole(l.SegmentBytes)
	}
	return j.Parts
}

// Files are the descriptors of a Job. They are sent in this order.
type Files struct {
	Segment      *os.File   // its header is already written
	Guest        *os.File   // the worker's end of the guest process's socket
	Gate, Bell   *os.File   //
	Store        *os.File   // file of the domain's device segments, gate.SegmentStore bytes
	GuestProcess *os.File   // pidfd; nil if the guest is not a process of this host
	Listener     *os.File   // socket at which a new daemon finds the worker; nil: none
	Hardware     []*os.File // shared by the accelerator's workers
}

func (f *Files) list() []*os.File {
	l := []*os.File{f.Segment, f.Guest, f.Gate, f.Bell, f.Store}
	for _, o := range []*os.File{f.GuestProcess, f.Listener} {
		if o != nil {
			l = append(l, o)
		}
	}
	return append(l, f.Hardware...)
}

// assign sets the files received with a Job.
func (f *Files) assign(j *Job, l []*os.File) error {
	want := 5 + j.Hardware
	targets := []**os.File{&f.Segment, &f.Guest, &f.Gate, &f.Bell, &f.Store}
	if j.HasGuestProcess {
		targets, want = append(targets, &f.GuestProcess), want+1
	}
	if j.HasListener {
		targets, want = append(targets, &f.Listener), want+1
	}
	if len(l) != want {
		return fmt.Errorf("job with %d files: want %d", len(l), want)
	}
	for i, p := range targets {
		*p = l[i]
	}
	f.Hardware = l[len(targets):]
	return nil
}

// Close closes all files that are set.
func (f *Files) Close() {
	for _, o := range append([]*os.File{f.Segment, f.Guest, f.Gate, f.Bell, f.Store, f.GuestProcess, f.Listener}, f.Hardware...) {
		if o != nil {
			o.Close()
		}
	}
}

// State is a worker's stage.
type State string

const (
	Serving State = "serving"
	Faulted State = "faulted" // a kernel of its guest faulted; the worker continues
	Ended   State = "ended"
)

// Report is a message of a worker to its daemon.
type Report struct {
	State State
	Why   string `json:",omitempty"` // reason of the end, or description of the fault
}

// Order is a message of a daemon to a serving worker.
type Order struct {
	// End, if not 0, is the CUresult that all further calls of the guest process return; the worker ends.
	End int32
	Why string
	// KernelTimeout, if not 0, replaces the Job's, as does Share, if not nil.
	KernelTimeout time.Duration
	Share         *Share `json:",omitempty"`
	LogLevel      string `json:",omitempty"` // replaces the Job's; empty: unchanged
}

// Survivor is a worker's message to a new daemon. Of the Files it carries Gate, Bell, Store, GuestProcess and Hardware.
type Survivor struct {
	PID int `json:"-"` // of the worker, as the kernel reports it
	Job Job
}

const (
	maxMessage = 64 << 10
	maxFiles   = 16
)

// SendJob sends a job to a worker. The caller keeps ownership of the files.
func SendJob(c *net.UnixConn, j Job, f Files) error {
	j.HasGuestProcess, j.HasListener, j.Hardware = f.GuestProcess != nil, f.Listener != nil, len(f.Hardware)
	return send(c, j, f.list())
}

// ReceiveReport blocks until a worker's next report. io.EOF means that the worker has ended.
func ReceiveReport(c *net.UnixConn) (r Report, err error) {
	_, err = receive(c, &r)
	return r, err
}

// SendOrder sends a worker an order. It does not block: it fails if the worker has left so many orders unread that
// there is no room for another. The caller may therefore hold locks.
func SendOrder(c *net.UnixConn, o Order) error { return sendNow(c, o, nil) }

// sendNow sends a message with files if there is room for it, or returns EAGAIN. It does not block, and it does not look
// at the clock: on a host whose processors are taken, any time can pass between two instructions.
func sendNow(c *net.UnixConn, message any, files []*os.File) error {
	b, oob, err := encode(message, files)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
	return errors.Join(err, sent)
}

// DialSurvivor connects to a worker's Listener with SO_PASSCRED, so that the kernel reports the sender's pid: the
// daemon kills by that number, so it must not come from a worker.
func DialSurvivor(path string) (*net.UnixConn, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var inner error
		err := raw.Control(func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
		return errors.Join(err, inner)
	}}
	c, err := d.Dial("unixpacket", path)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// ReceiveSurvivor receives the description of the worker to which DialSurvivor has connected. The caller owns the
// files. The PID is set once the worker has sent a message, even an invalid one.
func ReceiveSurvivor(c *net.UnixConn) (s Survivor, f Files, err error) {
	l, err := receiveFrom(c, &s, &s.PID)
	if err != nil {
		return s, f, err
	}
	if err := f.assignSurvivor(&s.Job, l); err != nil {
		closeAll(l)
		return s, f, err
	}
	return s, f, nil
}

func (f *Files) survivors() []*os.File {
	l := []*os.File{f.Gate, f.Bell, f.Store}
	if f.GuestProcess != nil {
		l = append(l, f.GuestProcess)
	}
	return append(l, f.Hardware...)
}

func (f *Files) assignSurvivor(j *Job, l []*os.File) error {
	first := 3
	if j.HasGuestProcess {
		first++
	}
	if len(l) != first+j.Hardware {
		return fmt.Errorf("survivor with %d files: want %d", len(l), first+j.Hardware)
	}
	f.Gate, f.Bell, f.Store = l[0], l[1], l[2]
	if j.HasGuestProcess {
		f.GuestProcess = l[3]
	}
	f.Hardware = l[first:]
	return nil
}

func send(c *net.UnixConn, message any, files []*os.File) error {
	b, oob, err := encode(message, files)
	if err != nil {
		return err
	}
	_, _, err = c.WriteMsgUnix(b, oob, nil)
	return err
}

// encode returns a message and the control message that carries its files.
func encode(message any, files []*os.File) (b, oob []byte, err error) {
	if b, err = json.Marshal(message); err != nil || len(files) == 0 {
		return b, nil, err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return b, unix.UnixRights(fds...), nil
}

// errTruncated reports a message, or its files, that arrived incomplete.
var errTruncated = errors.New("message truncated")

func receive(c *net.UnixConn, message any) ([]*os.File, error) {
	return receiveFrom(c, message, new(int))
}

// receiveFrom also sets the sender's pid, if the socket has SO_PASSCRED.
func receiveFrom(c *net.UnixConn, message any, pid *int) ([]*os.File, error) {
	b := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*maxFiles)+unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	files, err := ancillary(oob[:oobn], pid)
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errTruncated
	}
	if err == nil {
		err = json.Unmarshal(b[:n], message)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// ancillary returns the descriptors and sets the sender's pid from control messages.
func ancillary(oob []byte, pid *int) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			*pid = int(cred.Pid)
			continue
		}
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
