package main

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
)

func TestJudgeAddresses(t *testing.T) {
	for limit, want := range map[uint64]string{
		unix.RLIM_INFINITY: fine, callbuf.DeviceSliceBytes + workerAddresses: fine, callbuf.DeviceSliceBytes: fail, 8 << 30: fail,
	} {
		if c := judgeAddresses(limit)[0]; c.State != want || (want == fail) != (c.Fix != "") {
			t.Errorf("%d bytes: %+v", limit, c)
		}
	}
}

// A full file system, or one without room for another file, is a finding before it fails a daemon.
func TestJudgeRuntimeDir(t *testing.T) {
	for _, c := range []struct {
		fs    unix.Statfs_t
		state string
	}{
		{unix.Statfs_t{Bsize: 4096, Bavail: 1 << 20, Files: 100, Ffree: 50}, fine},
		{unix.Statfs_t{Bsize: 4096, Bavail: 1 << 20}, fine}, // btrfs counts no files
		{unix.Statfs_t{Bsize: 4096, Bavail: 0, Files: 100, Ffree: 50}, fail},
		{unix.Statfs_t{Bsize: 4096, Bavail: 10, Files: 100, Ffree: 50}, warn},
		{unix.Statfs_t{Bsize: 4096, Bavail: 1 << 20, Files: 100, Ffree: 0}, fail},
	} {
		if got := judgeRuntimeDir("/run/pegasus", &c.fs)[0]; got.State != c.state || (got.Fix == "") != (c.state == fine) {
			t.Errorf("%+v: %+v, want %s", c.fs, got, c.state)
		}
	}
	dir := t.TempDir()
	if got := (&call{dir: filepath.Join(dir, "none/yet")}).checkRuntimeDir(); len(got) != 1 || got[0].State == "" {
		t.Errorf("%+v", got)
	}
}
