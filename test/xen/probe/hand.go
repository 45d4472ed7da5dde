package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/callbuf/grant"
)

// hand maps pages of a domain as a hub and a worker do: two parts of them are in one file. An unprivileged
// process inherits the file, and maps each part once.
func hand(args []string) error {
	of, _, refs, err := parse(args)
	if err != nil {
		return err
	}
	header, unmap, err := grant.Map(of, refs[:1], true)
	if err != nil {
		return err
	}
	defer unmap()
	m, err := grant.NewMapper()
	if err != nil {
		return err
	}
	defer m.Close()
	var at [2]uint64
	for i, part := range [][]grant.Ref{refs[:2], refs[2:]} {
		if at[i], err = m.Add(of, part); err != nil {
			return err
		}
	}
	copy(header[100:], "from the hub")
	const nobody = 65534
	cmd := exec.Command("/proc/self/exe", "take", fmt.Sprint(at[0]), fmt.Sprint(at[1]), fmt.Sprint(len(refs)))
	cmd.ExtraFiles = []*os.File{m.File}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the other process: %w", err)
	}
	fmt.Printf("there is %q\n", header[200:215])
	if _, err := m.Map(at[0], 2, true); err == nil {
		return fmt.Errorf("what was mapped can be mapped again")
	}
	return nil
}

// take maps the pages of the descriptor that it has inherited, in two parts at addresses of its own choice.
func take(args []string) error {
	var at [2]uint64
	var pages uint64
	if _, err := fmt.Sscan(args[0]+" "+args[1]+" "+args[2], &at[0], &at[1], &pages); err != nil {
		return err
	}
	f := os.NewFile(3, "pages")
	parts := callbuf.Extents{{Offset: at[0], Bytes: 2 * grant.PageBytes}, {Offset: at[1], Bytes: (pages - 2) * grant.PageBytes}}
	front, err := callbuf.MapParts(f, parts[:1])
	if err != nil {
		return err
	}
	arena, ok := callbuf.MapPartsAt(f, parts[1:], callbuf.ArenaBases[0])
	if !ok {
		return fmt.Errorf("can't be mapped at %#x", callbuf.ArenaBases[0])
	}
	f.Close()
	fmt.Printf("it sees %q and %q\n", front[:14], front[100:112])
	copy(front[200:], "from the worker")
	arena[len(arena)-4096+10] = 7
	// Does a futex of several processes work there?
	began := time.Now()
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, word(front[300:]), 0, 0, timeout(50*time.Millisecond), 0, 0)
	fmt.Printf("futex: %v after %v\n", errno, time.Since(began).Round(time.Millisecond))
	return callbuf.UnmapParts(front)
}
