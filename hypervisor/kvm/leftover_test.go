package kvm

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// The region of a machine that stays off is removed, but neither one that is created anew meanwhile nor one of a
// machine in unknown state, nor one that a QEMU uses all the same.
func TestLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		off := map[string]bool{"off": true, "anew": true, "used": true}
		k := Keeper{
			Dir: dir, Log: slog.New(slog.DiscardHandler), left: map[string]leftover{},
			Off: func(name string) bool { return off[name] }, Valid: func(string) error { return nil },
		}
		put := func(name string) {
			making := making(filepath.Join(dir, name))
			if err := os.WriteFile(making, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(making, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		sweep := func() {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				k.sweep(filepath.Join(dir, e.Name()), e)
			}
		}
		there := func(name string, want bool) {
			t.Helper()
			if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) == want {
				t.Errorf("%s is there: %v", name, !want)
			}
		}
		put("off")
		put("anew")
		put("unknown")
		put("used")
		becomeQEMU(t)
		defer mapIt(t, filepath.Join(dir, "used"))()
		sweep()
		time.Sleep(leftTime - time.Second)
		put("other") // takes the next inode
		put("anew")
		sweep()
		there("off", true)
		time.Sleep(2 * time.Second)
		sweep()
		there("off", false)
		there("anew", true)
		there("unknown", true)
		there("used", true)
		off["anew"] = false
		time.Sleep(2 * leftTime)
		sweep()
		there("anew", true)
	})
}
