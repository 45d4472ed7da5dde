// Package raised changes the CPU weights of machines for moments, writes down what it changed, and
// says who puts that back when a daemon has died: a machine's hub, which outlives it, or the next
// daemon.
//
// Raisers call it, under Linux and under Xen. How a weight is read and written they know.
package raised

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

// Record is of one machine.
type Record struct {
	PID     int     `json:"pid"`             // of the daemon that changes it,
	Started uint64  `json:"started"`         // which began then, in the kernel's ticks
	File    string  `json:"file,omitempty"`  // of its cgroup,
	Xen     uint16  `json:"domid,omitempty"` // or Xen's number of it
	Set     int64   `json:"set"`             // by others
	Ours    []int64 `json:"ours"`            // what we may have written since; none: nothing is written down
}

// MaxWeight is the greatest weight that there can be.
const MaxWeight = 1 << 18

// Put writes back what was set, if the machine still has what we wrote, and says whether it did.
type Put func(r Record) (put bool, err error)

// Note writes down that the machine of a record, for which set is set, may get a weight.
func (r *Record) Note(dir, domain string, set, weight int64) error {
	if slices.Contains(r.Ours, weight) {
		return nil
	}
	pid := os.Getpid()
	started, ok := startOf(pid)
	if !ok {
		return fmt.Errorf("process %d: /proc doesn't tell when it began", pid)
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

// Erase removes what was written down.
func (r *Record) Erase(dir, domain string) {
	if len(r.Ours) > 0 {
		os.Remove(pathOf(dir, domain))
		r.Ours = nil
	}
}

const recordEnd = ".json"

func pathOf(dir, domain string) string { return filepath.Join(dir, domain+recordEnd) }

// maxRecord bounds what is read of a record.
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

// Sweep puts back what daemons before have left, whose records are in dir. There is no
// other daemon now. The record of what can't be put back stays.
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

// sweep carries out a record; done says that there is no more to it.
func sweep(path string, log *slog.Logger, put Put) (done bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	r, err := parse(text)
	if err != nil {
		return true, err // nor will it make sense to anybody else
	}
	err = r.restore(log, put)
	return err == nil, err
}

// guardEvery is how often it is looked whether a daemon still lives.
const guardEvery = 500 * time.Millisecond

// Guard puts back a domain's weight when the daemon that changes it has died, until ctx
// ends. Each machine's hub does that.
func Guard(ctx context.Context, dir, domain string, log *slog.Logger, put Put) {
	var done Record
	path, told := pathOf(dir, domain), ""
	for {
		r, err := read(path)
		if err == nil && !r.held() && !r.of(done) {
			if err := r.restore(log, put); err == nil {
				done = r // what it has from now on somebody else has set
				r.carriedOut(path)
			} else if err.Error() != told {
				told = err.Error()
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

// carriedOut removes a record, so that nobody carries it out again. The next daemon may have written
// down its own there meanwhile.
func (r *Record) carriedOut(path string) {
	if now, err := read(path); err == nil && now.of(*r) {
		os.Remove(path)
	}
}

// of says whether a record is of the same daemon as another one.
func (r *Record) of(o Record) bool { return r.PID == o.PID && r.Started == o.Started }

// held says whether the daemon of a record lives.
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

// What of a process's stat comes behind its name, which may contain anything.
const (
	statState = 0
	statStart = 22 - 3
)

// startOf is when a process began that hasn't ended.
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
