package test

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// printed runs a part of the printing program and returns its two outputs.
func printed(t *testing.T, h *host, program, part string) (out, err string) {
	t.Helper()
	cmd := h.guest("one", program, part)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	said, failed := cmd.Output()
	if failed != nil {
		t.Fatalf("%s: %v\n%s", part, failed, tail(stderr.Bytes(), 10))
	}
	return string(said), stderr.String()
}

// numbered returns a line for each number.
func numbered(format string, from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Kernel output reaches the program's own files when it synchronises.
func TestPrinting(t *testing.T) {
	h := startHost(t, oneDomain)
	p := program(t, "printing")
	var points strings.Builder
	for i := range 8 {
		fmt.Fprintf(&points, "before %d\ndevice 0 0\nafter %[1]d\n", i)
	}
	// A record is its text and four bytes.
	kept := 1000 / (len("12345\n") + 4)
	for _, c := range []struct{ part, out, err string }{
		{"points", points.String(), ""},
		{"leave", "begin\n0\n1\n2\nmiddle\n0 0\n0 1\nend\n", ""},
		{"oldest", numbered("%5d\n", 12345-kept, 12345) + "end\n", ""},
		{"nothing", "end\n", ""},
		{"waiting", "la\nend\n", ""},
		{"assertion", "hello\nend\n", "f.cu:17: f.cu: block: [0,0,0], thread: [2,0,0] Assertion `tid < n` failed.\n" +
			"f.cu:17: f.cu: block: [0,0,0], thread: [3,0,0] Assertion `tid < n` failed.\n"},
		{"fault", "end\n", "pegasus: kernel wrong: CUDA_ERROR_ILLEGAL_ADDRESS at block 0,0,0, thread 0,0,0, PTX line 60 (vec.cu:8): illegal address, address 0x10\n"},
		{"quits", "begin\ndevice 0 0\n", "pegasus: kernel wrong: CUDA_ERROR_ILLEGAL_ADDRESS at block 0,0,0, thread 0,0,0, PTX line 60 (vec.cu:8): illegal address, address 0x10\n"},
	} {
		t.Run(c.part, func(t *testing.T) {
			if out, err := printed(t, h, p, c.part); out != c.out || err != c.err {
				t.Errorf("printed %q and %q, want %q and %q", out, err, c.out, c.err)
			}
		})
	}
	t.Run("crowd", func(t *testing.T) {
		out, _ := printed(t, h, p, "crowd")
		lines := strings.SplitAfter(out, "\n")
		slices.Sort(lines)
		if lines = slices.Compact(lines); len(lines) != 1+256*256 || lines[0] != "" {
			t.Errorf("%d different lines, want one of each thread", len(lines)-1)
		}
		var b, l int
		for _, line := range lines[1:] {
			if n, err := fmt.Sscanf(line, "block %d thread %d\n", &b, &l); n != 2 || err != nil || b > 255 || l > 255 {
				t.Fatalf("line %q", line)
			}
		}
	})
	for _, part := range []string{"flood", "patience"} {
		t.Run(part, func(t *testing.T) {
			out, _ := printed(t, h, p, part)
			if lines := strings.Count(out, "la\n"); lines < 256 || strings.Repeat("la\n", lines)+"end\n" != out {
				t.Errorf("%d bytes with %d lines", len(out), lines)
			}
		})
	}
}

// A program with closed stdout misses the output of kernels, and nothing else.
func TestPrintingToNobody(t *testing.T) {
	h := startHost(t, oneDomain)
	run := h.guest("one", program(t, "printing"), "points")
	succeed(t, exec.Command("sh", append([]string{"-c", `exec "$@" >&-`, "sh"}, run.Args...)...))
}

// A program that enables it gets a profile on stderr when it exits.
func TestProfile(t *testing.T) {
	h := startHost(t, oneDomain)
	for _, env := range []string{"PEGASUS_SOFT_PROFILE=1", "PEGASUS_SOFT_PROFILE="} {
		cmd := h.guest("one", built(t, "bench/matmul"), "--quiet", "--iterations", "3")
		cmd.Env = append(cmd.Environ(), env)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		if got, want := strings.Contains(stderr.String(), "\nmatmul\n"), strings.HasSuffix(env, "1"); got != want {
			t.Errorf("with %s it says\n%s", env, &stderr)
		}
	}
}
