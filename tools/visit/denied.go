package main

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A worker fails without a hint if its filter lacks a system call that its driver needs. The kernel logs the
// denied calls, unless an audit daemon takes the records.

// kernelLog returns the readable part of the kernel's log.
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

// denied returns the numbers of the system calls that filters refused, by the log lines added between before
// and after.
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
