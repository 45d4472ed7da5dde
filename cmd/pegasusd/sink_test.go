package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// A log without a reader blocks no goroutine; the number of missing lines is logged when a reader comes.
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
	arrived, missing := 0, 0
	for _, line := range lines {
		if _, count, ok := strings.Cut(line, "missing here: it was not read\" lines="); ok {
			n, _ := strconv.Atoi(count)
			missing += n
		} else {
			arrived++
		}
	}
	if arrived+missing != 2*sinkLines+1 || missing < sinkLines/2 {
		t.Errorf("%d lines arrived, %d are said to be missing, of %d", arrived, missing, 2*sinkLines+1)
	}
	if first, last := lines[0], lines[len(lines)-1]; first != "line 0" || last != "last" {
		t.Errorf("from %q to %q", first, last)
	}
}
