package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// A log that nobody reads keeps nobody waiting; what is missing is said once somebody does.
func TestSink(t *testing.T) {
	r, w := io.Pipe()
	s := newSink(w)
	for i := range 2 * sinkLines {
		fmt.Fprintf(s, "line %d\n", i)
	}
	var got strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(&got, r)
	}()
	for room := false; !room; {
		s.mu.Lock()
		room = len(s.lines) < sinkLines/2
		s.mu.Unlock()
	}
	fmt.Fprintln(s, "last")
	s.close()
	s.close()
	fmt.Fprintln(s, "too late")
	w.Close()
	<-read
	lines := strings.Split(strings.TrimSuffix(got.String(), "\n"), "\n")
	n := len(lines)
	if lines[0] != "line 0" || lines[n-1] != "last" || !strings.HasSuffix(lines[n-2], "lines of the log are missing here: it was not taken") {
		t.Errorf("got %q … %q", lines[0], lines[n-2:])
	}
	if missing := 2*sinkLines - (n - 2); !strings.HasPrefix(lines[n-2], fmt.Sprint(missing, " ")) {
		t.Errorf("%d lines are missing: %q", missing, lines[n-2])
	}
}
