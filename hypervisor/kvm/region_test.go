package kvm

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pegasus/internal/testkit"
)

// An unmarked file doesn't count as a region.
func TestNoRegion(t *testing.T) {
	const bytes = 16 << 20
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "marked") {
		t.Error(err)
	}
	for _, wrong := range []uint64{0, 8 << 20, bytes + 4096} {
		if err := MakeRegion(path+"2", wrong, -1); err == nil {
			t.Errorf("a region of %d bytes", wrong)
		}
	}
}

// Regions lie in a directory in which no other user can create files.
func TestDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "regions")
	for range 2 {
		if err := MakeDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(dir); err == nil {
		t.Error("one that all may write to")
	}
	link := dir + "2"
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(link); err == nil {
		t.Error("a link")
	}
}

// A keeper starts a hub for each region, once, and another when that has died.
func TestKeeper(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "regions")
	said := filepath.Join(t.TempDir(), "said")
	k := Keeper{
		Dir: dir, Log: slog.New(slog.DiscardHandler),
		Valid: func(name string) error {
			if !canBeDomain(name) {
				return errors.New("bad")
			}
			return nil
		},
		Hub: func(region, domain string) []string {
			return []string{"sh", "-c", "echo " + domain + " >>" + said}
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- k.Run(ctx) }()
	testkit.Eventually(t, "the directory is there", func() bool { _, err := os.Stat(dir); return err == nil })
	for _, name := range []string{"-bad", ".half.new", ".web.new", "web", "web.new", "ports"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "half.new"), nil, 0o600); err != nil { // of an earlier release, which hadn't finished it
		t.Fatal(err)
	}
	testkit.Eventually(t, "hubs, and others when they have ended", func() bool {
		b, _ := os.ReadFile(said)
		for _, name := range []string{"web\n", "web.new\n", "ports\n"} {
			if slices.Index(strings.SplitAfter(string(b), "\n"), name) < 0 || strings.Count("\n"+string(b), "\n"+name) < 2 {
				return false
			}
		}
		return true
	})
	if b, err := os.ReadFile(said); err != nil || strings.Contains(string(b), "bad") || strings.Contains(string(b), "half") || strings.Contains("\n"+string(b), "\n.") {
		t.Errorf("hubs of %q, %v", b, err)
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// A region that is larger than its file system is refused, even before its directory exists.
func TestCheckRoom(t *testing.T) {
	region := filepath.Join(t.TempDir(), "none/yet/web")
	if err := CheckRoom(region, minRegion); err != nil {
		t.Error(err)
	}
	if err := CheckRoom(region, 1<<60); err == nil || !strings.Contains(err.Error(), "MiB in all") {
		t.Errorf("%v", err)
	}
	if got := mountOf("/proc/self/"); got != "/proc" {
		t.Errorf("mounted at %s", got)
	}
}
