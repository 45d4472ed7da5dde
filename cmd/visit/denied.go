package main

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A worker whose filter lacks a system call that its driver needs fails in ways that say nothing of that. Where nobody else
// takes them, the kernel has lines of its log for such calls.

// kernelLog is the kernel's log, as far as it can be read.
func kernelLog() []byte {
	const all, room = 3, 10 // SYSLOG_ACTION_READ_ALL, SYSLOG_ACTION_SIZE_BUFFER
	n, err := unix.Klogctl(room, nil)
	if err != nil || n <= 0 {
		return nil
	}
	text := make([]byte, n)
	if n, err = unix.Klogctl(all, text); err != nil {
		return nil
	}
	return text[:n]
}

var refusal = regexp.MustCompile(`(?m)type=1326 .* syscall=([0-9]+) `)

// denied are the numbers of system calls that filters refused, by the lines that a log has after those that it had before.
func denied(before, after []byte) (numbers []int) {
	if lines := bytes.Split(bytes.TrimRight(before, "\n"), []byte("\n")); len(before) > 0 {
		if _, fresh, found := bytes.Cut(after, append(lines[len(lines)-1], '\n')); found {
			after = fresh
		}
	}
	for _, m := range refusal.FindAllSubmatch(after, -1) {
		if n, err := strconv.Atoi(string(m[1])); err == nil && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}
