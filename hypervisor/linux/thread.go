package linux

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux/switches"
	"pegasus/vcpu"
)

// thread is a thread of a guest process: a vCPU of its domain.
type thread struct {
	tid             int
	vcpu            vcpu.VCPU
	exact           bool  // vcpu's state is the kernel's record, not an estimate
	since           int64 // start of that state: CLOCK_MONOTONIC ns
	account         hypervisor.Account
	place           switches.Slot // in the table, if it is watched there
	watched         bool
	schedstat, stat int           // descriptors
	ran, waited     time.Duration // totals, by the source read last
	done            runTimes      // since the last look
	said            [80]byte      // its schedstat, as last read
	length          int           // length of that; 0: it was not read last time
}

// runTimes are a thread's times between two looks.
type runTimes struct{ ran, waited time.Duration }

// openThread opens the files of a thread, which stay the same thread's even if its number is reused.
func openThread(dir string, tid, id int) (*thread, error) {
	schedstat, err := openFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return nil, err
	}
	stat, err := openFile(filepath.Join(dir, "stat"))
	if err != nil {
		unix.Close(schedstat)
		return nil, err
	}
	return &thread{tid: tid, vcpu: vcpu.VCPU{ID: id, PCPU: -1}, schedstat: schedstat, stat: stat}, nil
}

// openFile opens a file that is read so often that os.File's overhead matters.
func openFile(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

func (t *thread) close() {
	unix.Close(t.schedstat)
	unix.Close(t.stat)
}

// take does the same as look, from the kernel's record of the thread at the time clock.
func (t *thread) take(e switches.Entry, clock int64) bool {
	ran, waited := time.Duration(e.Ran), time.Duration(e.Waited)
	state, passed := vcpu.Blocked, time.Duration(max(clock-e.Since, 0))
	switch e.State {
	case switches.Running:
		state, ran = vcpu.Running, ran+passed
	case switches.Runnable:
		state, waited = vcpu.Runnable, waited+passed
	case switches.Ended:
		return false
	}
	t.done = runTimes{}
	if t.exact {
		t.done = runTimes{max(ran-t.ran, 0), max(waited-t.waited, 0)}
	}
	t.ran, t.waited, t.exact, t.length = ran, waited, true, 0
	t.vcpu.State, t.vcpu.PCPU, t.since = state, e.CPU, e.Since
	return true
}

// there reports whether the thread exists.
func (t *thread) there(buf []byte) bool {
	n, _ := unix.Pread(t.schedstat, buf, 0)
	return n > 0
}

// look samples the thread's times since the last look and its state; false: it has ended.
func (t *thread) look(buf []byte) bool {
	t.exact = false
	n, _ := unix.Pread(t.schedstat, buf, 0)
	text := buf[:max(n, 0)]
	t.done = runTimes{}
	if !bytes.Equal(text, t.said[:t.length]) {
		ran, waited, ok := parseSchedstat(text)
		if !ok {
			return false
		}
		if t.length > 0 { // its times before it was found don't count
			t.done = runTimes{max(ran-t.ran, 0), max(waited-t.waited, 0)}
		}
		t.ran, t.waited = ran, waited
		t.length = copy(t.said[:], text)
	} else if t.vcpu.State == vcpu.Blocked {
		return len(text) > 0 // most threads sleep most of the time, and this check is cheaper
	}
	n, _ = unix.Pread(t.stat, buf, 0)
	s, ok := parseStat(buf[:max(n, 0)])
	if !ok {
		return false
	}
	t.vcpu.PCPU = s.cpu
	t.vcpu.State = vcpu.Blocked
	if s.state == 'R' {
		t.vcpu.State = vcpu.Runnable
		if t.done.ran == 0 { // the kernel counts a wait only at its end
			t.done.waited = max(t.done.waited, 1)
		}
	}
	return true
}

// spend sets the account's times since the last look, if `known` is set.
func (t *thread) spend(known bool) {
	t.account.Ran, t.account.Waited = 0, 0
	if known {
		t.account.Ran, t.account.Waited = t.done.ran, t.done.waited
	}
}

// parseSchedstat parses a thread's schedstat: ns that it ran, and waited for a CPU.
func parseSchedstat(text []byte) (ran, waited time.Duration, ok bool) {
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0, 0, false
	}
	r, err := strconv.ParseInt(string(fields[0]), 10, 64)
	w, err2 := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(r), time.Duration(w), errors.Join(err, err2) == nil
}

// stat has the used fields of a process's or thread's stat.
type stat struct {
	state byte // R: runs or waits for a CPU
	nice  int
	cpu   int // where it runs, or ran last
}

func readStat(path string) (stat, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// The indexes of stat's fields after the name, which may contain any bytes; the first of them is number 3 in proc(5).
const (
	statState = 0
	statNice  = 19 - 3
	statCPU   = 39 - 3
)

func parseStat(text []byte) (s stat, ok bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= statCPU || len(fields[statState]) != 1 {
		return s, false
	}
	s.state = fields[statState][0]
	var err, err2 error
	s.nice, err = strconv.Atoi(string(fields[statNice]))
	s.cpu, err2 = strconv.Atoi(string(fields[statCPU]))
	return s, errors.Join(err, err2) == nil
}
