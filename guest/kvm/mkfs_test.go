package kvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An mkfs.ext4 that hangs is an error of the region after the timeout.
func TestMkfsHangs(t *testing.T) {
	dirs, limit := SystemDirs, mkfsTime
	defer func() { SystemDirs, mkfsTime = dirs, limit }()
	SystemDirs, mkfsTime = []string{t.TempDir()}, 100*time.Millisecond
	if err := os.WriteFile(filepath.Join(SystemDirs[0], "mkfs.ext4"), []byte("#!/bin/sh\nsleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := mkfs("/dev/null", 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}
