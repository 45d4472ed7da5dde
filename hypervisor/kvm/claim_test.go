package kvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/hypervisor"
)

// A directory of regions has one daemon at a time; the refused daemon names the directory.
func TestClaim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "regions")
	soon := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	release, err := Claim(soon(time.Minute), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(soon(50*time.Millisecond), dir); !errors.Is(err, hypervisor.ErrServed) || !strings.Contains(err.Error(), fmt.Sprintf("process %d:", os.Getpid())) {
		t.Errorf("claimed twice: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, release) // Claim waits for one that is ending
	second, err := Claim(soon(time.Minute), dir)
	if err != nil {
		t.Fatal(err)
	}
	second()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(soon(time.Minute), dir); err == nil || errors.Is(err, hypervisor.ErrServed) {
		t.Errorf("a directory of all users: %v", err)
	}
}
