package linux

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

// memo is what is written down of a machine's group before its weight is changed.
type memo struct {
	PID     int     `json:"pid"`     // of the daemon that changes it,
	Started uint64  `json:"started"` // which began then, in the kernel's ticks
	File    string  `json:"file"`
	Set     int64   `json:"set"`  // by others
	Ours    []int64 `json:"ours"` // what we may have written since
}

// note writes down that a group may get a weight.
func (r *Raiser) note(domain string, g *raisable, weight int64) error {
	if g.note.File != "" && slices.Contains(g.note.Ours, weight) {
		return nil
	}
	pid := os.Getpid()
	started, ok := startOf(pid)
	if !ok {
		return fmt.Errorf("process %d: /proc doesn't tell when it began", pid)
	}
	next := memo{PID: pid, Started: started, File: g.file, Set: g.set, Ours: append(slices.Clone(g.note.Ours), weight)}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	path := recordPath(r.dir, domain)
	err = os.MkdirAll(r.dir, 0o700)
	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write down a CPU weight: %w", err)
	}
	g.note = next
	return nil
}

// erase removes what was written down of a group.
func (r *Raiser) erase(domain string, g *raisable) {
	if g.note.File != "" {
		os.Remove(recordPath(r.dir, domain))
		g.note = memo{}
	}
}

const recordEnd = ".json"

func recordPath(dir, domain string) string { return filepath.Join(dir, domain+recordEnd) }

// maxRecord bounds what is read of a record.
const maxRecord = 1 << 16

func readRecord(path string) (memo, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return memo{}, err
	}
	return parseRecord(text)
}

func parseRecord(text []byte) (r memo, err error) {
	if len(text) > maxRecord {
		return r, errors.New("it is too long")
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return memo{}, err
	}
	if r.Set < leastWeight || r.Set > mostShares || !filepath.IsAbs(r.File) {
		return memo{}, fmt.Errorf("it puts %d into %q", r.Set, r.File)
	}
	return r, nil
}

// Sweep puts back what daemons before have left, whose records are in dir. There is no
// other daemon now.
func Sweep(dir string, log *slog.Logger) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("look for CPU weights that a daemon before has left", "err", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasSuffix(path, recordEnd) {
			r, err := readRecord(path)
			if err == nil {
				err = r.restore(log)
			}
			if err != nil {
				log.Warn("put back a machine's CPU weight", "record", path, "err", err)
			}
		}
		os.Remove(path)
	}
}

// guardEvery is how often it is looked whether a daemon still lives.
const guardEvery = 500 * time.Millisecond

// Guard puts back a domain's weight when the daemon that changes it has died, until ctx
// ends. Each machine's hub does that, which outlives its daemon.
func Guard(ctx context.Context, dir, domain string, log *slog.Logger) {
	var done memo
	for {
		r, err := readRecord(recordPath(dir, domain))
		if err == nil && !r.held() && (r.PID != done.PID || r.Started != done.Started) {
			if err := r.restore(log); err != nil {
				log.Warn("put back the machine's CPU weight", "err", err)
			}
			done = r // what it has from now on somebody else has set
		}
		select {
		case <-time.After(guardEvery):
		case <-ctx.Done():
			return
		}
	}
}

// held says whether the daemon of a record lives.
func (r *memo) held() bool {
	started, ok := startOf(r.PID)
	return ok && started == r.Started
}

// restore writes back what was set, if the group still has what we wrote.
func (r *memo) restore(log *slog.Logger) error {
	text, there, ours := setting(r.File)
	if !there || !ours {
		return nil // the machine is off
	}
	has, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !slices.Contains(r.Ours, has) {
		return nil
	}
	log.Info("a CPU weight is put back that a daemon has left", "file", r.File, "was", has, "is", r.Set)
	return (&raisable{file: r.File}).put(0, r.Set)
}

// Fields of a process's stat, as those of parseStat.
const statStart = 22 - 3

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
