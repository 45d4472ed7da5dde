// Package weightjournal changes the CPU weights of machines temporarily, records each change on disk, and restores the
// weights when a daemon has died: in a machine's hub, which outlives the daemon, or in the next daemon.
//
// Callers: Raisers, under Linux and under Xen. They provide reading and writing of a weight.
//
// Trust boundary: none; the file of changed weights lies in the runtime directory, which belongs to the daemon's user.
package weightjournal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record is the journal entry of one machine.
type Record struct {
	PID     int     `json:"pid"`             // of the daemon that changes it,
	Started uint64  `json:"started"`         // and that daemon's start time, in the kernel's ticks
	File    string  `json:"file,omitempty"`  // the weight's cgroup,
	Xen     uint16  `json:"domid,omitempty"` // or Xen's domain number
	Set     int64   `json:"set"`             // the configured weight
	Ours    []int64 `json:"ours"`            // weights that we may have written since; none: no entry on disk
}

// MaxWeight is the greatest valid weight.
const MaxWeight = 1 << 18

// Put restores the configured weight, if the machine still has one that we wrote, and reports whether it did.
type Put func(r Record) (put bool, err error)

// Note records on disk that weight may be written for a machine with the configured weight set.
func (r *Record) Note(dir, domain string, set, weight int64) error {
	if slices.Contains(r.Ours, weight) {
		return nil
	}
	pid := os.Getpid()
	started, ok := startOf(pid)
	if !ok {
		return fmt.Errorf("process %d: no start time in /proc", pid)
	}
	next := *r
	next.PID, next.Started, next.Set, next.Ours = pid, started, set, append(slices.Clone(r.Ours), weight)
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	path := pathOf(dir, domain)
	err = os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write down a CPU weight: %w", err)
	}
	*r = next
	return nil
}

// Erase removes the entry from disk.
func (r *Record) Erase(dir, domain string) {
	if len(r.Ours) > 0 {
		os.Remove(pathOf(dir, domain))
		r.Ours = nil
	}
}

const recordEnd = ".json"

func pathOf(dir, domain string) string { return filepath.Join(dir, domain+recordEnd) }

// maxRecord bounds the bytes read of a record.
const maxRecord = 1 << 16

func read(path string) (Record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Record{}, err
	}
	return parse(text)
}

func parse(text []byte) (r Record, err error) {
	if len(text) > maxRecord {
		return r, errors.New("it is too long")
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, err
	}
	if r.Set < 1 || r.Set > MaxWeight || filepath.IsAbs(r.File) == (r.Xen != 0) {
		return Record{}, fmt.Errorf("it puts %d into file %q of domain %d", r.Set, r.File, r.Xen)
	}
	return r, nil
}

// Sweep restores the weights that earlier daemons left changed. Their records are in dir. No other daemon runs now.
// Records of weights that can't be restored remain.
func Sweep(dir string, log *slog.Logger, put Put) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("look for CPU weights that a daemon before has left", "err", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		done := true
		if strings.HasSuffix(path, recordEnd) {
			if done, err = sweep(path, log, put); err != nil {
				log.Warn("put back a machine's CPU weight", "record", path, "err", err)
			}
		}
		if done {
			os.Remove(path)
		}
	}
}

// sweep carries out a record; done reports that the record is no longer needed.
func sweep(path string, log *slog.Logger, put Put) (done bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	r, err := parse(text)
	if err != nil {
		return true, err // the record is invalid for every reader
	}
	err = r.restore(log, put)
	return err == nil, err
}

// guardEvery is the interval of the checks whether a daemon lives.
const guardEvery = 500 * time.Millisecond

// Guard restores a domain's weight when the daemon that changes it has died; it blocks until ctx ends. Each machine's
// hub runs it.
func Guard(ctx context.Context, dir, domain string, log *slog.Logger, put Put) {
	var done Record
	path, lastLogged := pathOf(dir, domain), ""
	for {
		r, err := read(path)
		if err == nil && !r.held() && !r.of(done) {
			if err := r.restore(log, put); err == nil {
				done = r // a later weight was set by another program
				r.carriedOut(path)
			} else if err.Error() != lastLogged {
				lastLogged = err.Error()
				log.Warn("put back the machine's CPU weight", "err", err)
			}
		}
		select {
		case <-time.After(guardEvery):
		case <-ctx.Done():
			return
		}
	}
}

// carriedOut removes a record, so that it is not carried out again. The next daemon may meanwhile have written its
// own record there, which stays.
func (r *Record) carriedOut(path string) {
	if now, err := read(path); err == nil && now.of(*r) {
		os.Remove(path)
	}
}

// of reports whether a record is of the same daemon as another one.
func (r *Record) of(o Record) bool { return r.PID == o.PID && r.Started == o.Started }

// held reports whether the daemon of a record lives.
func (r *Record) held() bool {
	started, ok := startOf(r.PID)
	return ok && started == r.Started
}

func (r *Record) restore(log *slog.Logger, put Put) error {
	did, err := put(*r)
	if did && err == nil {
		log.Info("a CPU weight is put back that a daemon has left", "record", *r)
	}
	return err
}

// Indexes of the fields of /proc/PID/stat behind the process's name, which may contain any bytes.
const (
	statState = 0
	statStart = 22 - 3
)

// startOf returns the start time of a process that hasn't ended.
func startOf(pid int) (uint64, bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= statStart || bytes.ContainsAny(fields[statState], "ZX") {
		return 0, false
	}
	n, err := strconv.ParseUint(string(fields[statStart]), 10, 64)
	return n, err == nil
}
