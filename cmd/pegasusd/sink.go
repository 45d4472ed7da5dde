package main

import (
	"bytes"
	"io"
	"sync"
	"time"

	"pegasus/internal/logs"
)

const (
	// sinkLines is the capacity of the queue of lines.
	sinkLines = 1024
	// sinkGrace is the time for which close waits for the queued lines.
	sinkGrace = time.Second
)

// sink passes log lines on to a writer that may block, such as a stopped terminal or a pipe without a reader:
// the logging goroutine, which may hold a lock that all guests need, never waits for it. Lines that do not
// fit into the queue are counted instead.
type sink struct {
	mu    sync.Mutex
	lines chan []byte // nil after close
	lost  int
	ended chan struct{}
}

func newSink(to io.Writer) *sink {
	s := &sink{lines: make(chan []byte, sinkLines), ended: make(chan struct{})}
	go func(lines <-chan []byte) {
		defer close(s.ended)
		for line := range lines {
			to.Write(line)
		}
	}(s.lines)
	return s
}

// Write never fails and never blocks.
func (s *sink) Write(b []byte) (int, error) {
	line := bytes.Clone(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 {
		line = append(logs.Line("lines of the log are missing here: it was not read", "lines", s.lost), line...)
	}
	select {
	case s.lines <- line:
		s.lost = 0
	default:
		s.lost++
	}
	return len(b), nil
}

// close waits for the queued lines, unless the writer blocks.
func (s *sink) close() {
	s.mu.Lock()
	lines := s.lines
	s.lines = nil
	s.mu.Unlock()
	if lines == nil {
		return
	}
	close(lines)
	select {
	case <-s.ended:
	case <-time.After(sinkGrace):
	}
}
