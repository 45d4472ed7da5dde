package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// Status is an agent's answer to a status query.
type Status struct {
	Release   string `json:"release"`
	Why       string `json:"why,omitempty"`    // why the agent serves no programs; empty while it starts
	Device    string `json:"device,omitempty"` // of the region; empty: it has none
	Bytes     uint64 `json:"bytes,omitempty"`
	Shared    bool   `json:"shared,omitempty"` // each process can access all of it
	Processes int    `json:"processes"`

	// State of the host, while it answers.
	Host        bool   `json:"host"`
	HostRelease string `json:"host_release,omitempty"`
	Generation  uint64 `json:"generation,omitempty"`
}

// question is the status query, sent in place of a hello.
var question = []byte("PEGASUS STATUS?")

const statusBytes = 4096

// errOther reports an invalid answer.
var errOther = errors.New("no sensible answer: an agent of another version?")

// Ask queries the agent at a socket. A dial error is the system's error.
func Ask(socket string) (s Status, err error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.Dial("unixpacket", socket)
	if err != nil {
		return s, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(question); err != nil {
		return s, fmt.Errorf("ask the agent: %w", err)
	}
	buf := make([]byte, statusBytes)
	n, err := c.Read(buf)
	if err != nil {
		return s, fmt.Errorf("the agent gives no answer: %w", err)
	}
	if err := json.Unmarshal(buf[:n], &s); err != nil || s.Release == "" {
		return s, errOther
	}
	return s, nil
}

// statusGrace is how long the host may take to answer before the status reports it.
const statusGrace = 2 * time.Second

// status returns the status; it runs on the session's goroutine.
func (s *session) status() Status {
	st := Status{Release: s.agent.Release, Device: s.memory.Name(), Bytes: s.memory.Bytes(), Shared: s.memory.Shared(), Processes: len(s.processes), Host: s.serving}
	if s.serving {
		st.HostRelease, st.Generation = s.control.HostRelease(), s.control.Generation()
	} else if time.Since(s.heard) > statusGrace {
		st.Why = hostAway
	}
	return st
}
