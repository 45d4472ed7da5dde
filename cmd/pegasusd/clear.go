package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pegasus/backend/pidfd"
	"pegasus/backend/workers"
	"pegasus/configs"
)

// clear removes all that an ended daemon left in its runtime directory: workers, hubs, cgroups and the directory
// itself. A configuration that can't be read doesn't prevent that: the package is being removed.
func (s *settings) clear(errs io.Writer) error {
	config, _, err := s.load()
	if err != nil {
		config = configs.Default()
	}
	dir, err := s.runtimeDir(config)
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	log := slog.New(slog.NewTextHandler(errs, nil))
	if err := workers.Clear(dir, log); err != nil {
		log.Warn("end the workers", "err", err)
	}
	for _, pid := range hubsOf(dir) {
		if err := endProcess(pid); err != nil {
			log.Warn("end a hub", "pid", pid, "err", err)
		}
	}
	return os.RemoveAll(dir)
}

// hubsOf returns the processes of hubs that daemons of a runtime directory started.
func hubsOf(dir string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || filepath.Base(strings.TrimSuffix(program, " (deleted)")) != "pegasusd" {
			continue
		}
		text, _ := os.ReadFile(path)
		if isHub(text, dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isHub reports whether a command line, as the kernel shows it, is that of a hub of a runtime directory.
func isHub(text []byte, dir string) bool {
	var args []string
	for _, a := range bytes.Split(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		args = append(args, string(a))
	}
	at := slices.Index(args, "--runtime-dir")
	return len(args) > 1 && args[1] == "hub" && at > 0 && at+1 < len(args) && args[at+1] == dir
}

// endProcess kills a process and blocks until it has ended, for at most lockTime.
func endProcess(pid int) error {
	p, err := pidfd.Open(pid)
	if err != nil {
		return nil // it has just ended
	}
	defer p.Close()
	if err := pidfd.Kill(p); err != nil {
		return err
	}
	for end := time.Now().Add(lockTime); !pidfd.HasExited(p); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d hasn't ended in %v", pid, lockTime)
		}
	}
	return nil
}
