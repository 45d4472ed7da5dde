package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

// Record is the state of a session that outlives its agent, beside the region's contents; the next agent resumes from
// it. It is written before the hub receives a process's Open, and after the process's last resource is released.
type Record struct {
	Boot       uint64   `json:"boot"`
	Generation uint64   `json:"generation"`
	Last       uint32   `json:"last"`
	Processes  []Client `json:"processes"`
}

// Client is a process's record, with its start time, since the kernel reuses process IDs.
type Client struct {
	Number  uint32 `json:"number"`
	PID     uint32 `json:"pid"`
	Started uint64 `json:"started"`
	Served  bool   `json:"served"` // its segment was sent, and it hasn't ended
	// At is the location of its segment in its file, if no file system keeps that.
	At *callbuf.Extent `json:"at,omitempty"`
}

// Parts returns the recorded locations of segments in their files, by the names of the pieces.
func (r Record) Parts() map[string]callbuf.Extent {
	parts := make(map[string]callbuf.Extent)
	for _, c := range r.Processes {
		if c.At != nil {
			parts[allocationName(r.Boot, c.Number)] = *c.At
		}
	}
	return parts
}

// recordPath returns the path of the record, which is on a tmpfs: it lives as long as the memory that it describes.
func (a Agent) recordPath() string { return a.Dir + ".json" }

// readRecord reads the previous agent's record.
func readRecord(path string) (r Record, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

// save writes the record. On failure it removes it, so that the next agent starts anew: an incomplete record would be
// worse.
func (s *session) save() {
	r := Record{Boot: s.boot, Generation: s.control.Generation(), Last: s.last}
	for _, p := range s.processes {
		r.Processes = append(r.Processes, Client{p.number, p.pid, p.started, p.served && !p.closing, p.at})
	}
	b, err := json.Marshal(r)
	path := s.agent.recordPath()
	if err == nil {
		if err = os.WriteFile(path+".new", b, 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		s.agent.Log.Error("write down what is served: after the agent's death programs will lose their workers", "err", err)
		os.Remove(path)
	}
}

// lock ensures that a machine has one agent, until the file is closed.
func (a Agent) lock() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(a.Dir), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(a.Dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w: is there another agent?", f.Name(), err)
	}
	return f, nil
}
