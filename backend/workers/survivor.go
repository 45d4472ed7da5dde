package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"pegasus/backend/control"
	"pegasus/backend/pidfd"
	"pegasus/backend/statefile"
	"pegasus/backend/worker"
)

// adoptTime bounds the time in which a worker must identify itself.
const adoptTime = 2 * time.Second

// Record is the description of a worker that a daemon saves for the next one. The next daemon trusts it more than the
// worker, which has executed guests' input.
type Record struct {
	Domain      string `json:"domain"`
	Accelerator string `json:"accelerator"`
	PID         int    `json:"pid"`
	UID         int    `json:"uid"`
	Guest       int    `json:"guest"`
	Slot        int    `json:"slot"`
	Slice       int    `json:"slice"`
	Arena       uint64 `json:"arena"`
}

func (w *Workers) recordPath(id uint64) string {
	return filepath.Join(w.opt.RuntimeDir, "workers", fmt.Sprintf("%d.json", id))
}

// recordOf returns the record of a worker with a job.
func recordOf(j *worker.Job, pid int) Record {
	return Record{j.Domain, j.Accelerator.Name, pid, j.UID, j.GuestPID, j.Slot, j.Slice, j.Geometry.ArenaBytes}
}

// saveRecord saves the record of the worker that is about to receive a job.
func (w *Workers) saveRecord(j *worker.Job, pid int) error {
	if w.opt.Private {
		return nil
	}
	if err := statefile.Write(w.recordPath(j.ID), recordOf(j, pid)); err != nil {
		return fmt.Errorf("save the record of worker %d: %w", pid, err)
	}
	return nil
}

// Survivor is a worker that a previous daemon left running.
type Survivor struct {
	ID    uint64
	Conn  *net.UnixConn
	Files worker.Files
	Record
}

// Survivors returns the workers that are alive, and removes the files of the others.
func (w *Workers) Survivors() ([]*Survivor, error) {
	sockets, err := filepath.Glob(filepath.Join(w.opt.RuntimeDir, "workers", "*.sock"))
	if err != nil {
		return nil, err
	}
	var (
		mu   sync.Mutex
		left []*Survivor
		all  sync.WaitGroup
	)
	slots := make(chan struct{}, 32)
	for _, path := range sockets {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s, err := w.identify(path)
			if err != nil {
				w.opt.Log.Warn("identify a worker of the previous daemon failed", "socket", path, "err", err)
			}
			if s != nil {
				mu.Lock()
				defer mu.Unlock()
				left = append(left, s)
			}
		})
	}
	all.Wait()
	slices.SortFunc(left, func(a, b *Survivor) int { return cmp.Compare(a.ID, b.ID) })
	return left, nil
}

// identify connects to the worker at a socket and identifies it. It returns nil for a dead worker, and ends a worker
// that does not match its record.
func (w *Workers) identify(path string) (*Survivor, error) {
	s := &Survivor{}
	var err error
	if s.ID, err = strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".sock"), 10, 64); err != nil {
		return nil, os.Remove(path)
	}
	if s.Conn, err = dialWorker(path); err != nil {
		if r, err := readRecord(w.recordPath(s.ID)); err == nil {
			if p, err := pidfd.Open(r.PID); err == nil { // it may be ending
				awaitDeath(p)
			}
		}
		w.Strike(s.ID)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	if err := s.identify(w.recordPath(s.ID)); err != nil {
		s.Conn.Close()
		s.Files.Close()
		s.End()
		w.Strike(s.ID)
		return nil, err
	}
	return s, nil
}

// Strike removes the files of a worker that has ended. A next daemon finds workers by their sockets: a socket left
// without a record, by a daemon killed between the two removals, is removed then.
func (w *Workers) Strike(id uint64) {
	os.Remove(w.recordPath(id))
	os.Remove(w.socketPath(id))
}

// dialWorker connects to a worker's socket if root or the daemon's user made it.
func dialWorker(path string) (*net.UnixConn, error) {
	c, err := worker.DialSurvivor(path)
	if err != nil {
		return nil, err
	}
	p, err := control.PeerOf(c)
	if err == nil && p.UID != 0 && p.UID != os.Geteuid() {
		err = fmt.Errorf("socket belongs to user %d", p.UID)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// identify compares the worker's description with its record. If they differ, or one is missing, it still sets the PID
// for End.
func (s *Survivor) identify(path string) error {
	written, err := readRecord(path)
	s.Conn.SetDeadline(time.Now().Add(adoptTime))
	defer s.Conn.SetDeadline(time.Time{})
	answer, files, failed := worker.ReceiveSurvivor(s.Conn)
	s.Files, s.PID = files, cmp.Or(written.PID, answer.PID)
	if failed != nil {
		failed = fmt.Errorf("receive the worker's description: %w", failed)
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	s.Record = recordOf(&answer.Job, answer.PID)
	if answer.Job.ID != s.ID || s.Record != written {
		return fmt.Errorf("worker describes itself as %+v; its record is %+v", s.Record, written)
	}
	return nil
}

func readRecord(path string) (r Record, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// End kills the worker and blocks until it is dead, so that its resources on an accelerator can be reclaimed.
func (s *Survivor) End() {
	if s.PID == 0 {
		return
	}
	if p, err := pidfd.Open(s.PID); err == nil {
		pidfd.Kill(p)
		awaitDeath(p)
	}
}

// awaitDeath blocks until a process ends, for at most adoptTime. It closes p.
func awaitDeath(p *os.File) {
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adoptTime)
	defer cancel()
	pidfd.AwaitExit(ctx, p)
}

// Shared returns the files of an accelerator that its survivors still use. The caller owns the bell.
func Shared(left []*Survivor, accelerator string) (hardware []*os.File, bell *os.File) {
	for _, s := range left {
		if s.Accelerator == accelerator {
			bell, s.Files.Bell = s.Files.Bell, nil
			return s.Files.Hardware, bell
		}
	}
	return nil, nil
}
