package xen

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/hypervisor"
	"pegasus/internal/testkit"
)

// A process of this test is a hub: it locks its file, and ends at SIGTERM.
func TestMain(m *testing.M) {
	if lockFile := os.Getenv("PEGASUS_TEST_PLACE"); lockFile != "" {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		f, err := LockHub(lockFile, os.Getenv("PEGASUS_TEST_DOMAIN"))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		<-end
		f.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type keeperTest struct {
	*testing.T
	dir string
	k   *Keeper
}

// start starts a daemon with a keeper; stop ends it.
func (t *keeperTest) start() (stop func()) {
	t.k = NewKeeper(t.dir, func(domain string, d DomU, lockFile string) []string {
		return []string{"env", "PEGASUS_TEST_PLACE=" + lockFile, "PEGASUS_TEST_DOMAIN=" + domain, os.Args[0]}
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- t.k.Run(ctx) }()
	return func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
}

// serves returns the domain that the hub of a domU serves, and its process.
func (t *keeperTest) serves(id string) (string, int) { return lockHolder(filepath.Join(t.dir, id)) }

func (t *keeperTest) eventually(what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, what, ok)
}

func (t *keeperTest) is(id, domain string) (pid int) {
	t.Helper()
	t.eventually("domU "+id+" is "+domain, func() bool {
		var is string
		is, pid = t.serves(id)
		return is == domain && (pid == 0) == (domain == "")
	})
	return pid
}

func machine(name string, id uint16) hypervisor.Machine {
	return hypervisor.Machine{Domain: name, Xen: id, State: hypervisor.MachineRunning}
}

// The keeper's domUs have a hub, also after its death; others have none. A restarted daemon finds the existing hubs.
func TestKeeper(tt *testing.T) {
	t := &keeperTest{T: tt, dir: filepath.Join(tt.TempDir(), "hubs")}
	stop := t.start()
	defer func() {
		t.k.Keep([]hypervisor.Machine{})
		t.eventually("all have ended", func() bool {
			_, one := t.serves("1")
			_, two := t.serves("2")
			return one == 0 && two == 0
		})
		stop()
	}()
	off := machine("off", 3)
	off.State = hypervisor.MachineOff
	t.k.Keep([]hypervisor.Machine{machine("web", 1), machine("shop", 2), off, machine("another hypervisor's", 0)})
	web, shop := t.is("1", "web"), t.is("2", "shop")
	if entries, _ := os.ReadDir(t.dir); len(entries) != 2 {
		t.Errorf("there are %v", entries)
	}
	if _, err := LockHub(filepath.Join(t.dir, "1"), "web"); err == nil || !strings.Contains(err.Error(), "has a hub already") {
		t.Errorf("a second hub: %v", err)
	}
	syscall.Kill(web, syscall.SIGKILL)
	t.eventually("another is started", func() bool { _, pid := t.serves("1"); return pid != 0 && pid != web })
	web = t.is("1", "web")

	stop()
	stop = t.start()
	if served := t.k.Served(); !maps.Equal(served, map[uint16]string{1: "web", 2: "shop"}) {
		t.Errorf("there are hubs of %v", served)
	}
	t.k.Keep([]hypervisor.Machine{machine("web", 1), machine("shop", 2)})
	time.Sleep(50 * time.Millisecond)
	if t.is("1", "web") != web || t.is("2", "shop") != shop {
		t.Error("the next daemon starts other hubs")
	}
	t.k.Keep([]hypervisor.Machine{machine("web", 1)})
	t.is("2", "")
	t.eventually("its lock file is gone", func() bool { _, err := os.Stat(filepath.Join(t.dir, "2")); return os.IsNotExist(err) })
	t.k.Keep([]hypervisor.Machine{machine("renamed", 1)})
	t.is("1", "renamed")
	t.k.Keep([]hypervisor.Machine{machine("renamed", 1), machine("shop", 2)})
	if t.is("2", "shop") == shop {
		t.Error("a hub that was ended is there")
	}
}

// A hub that doesn't end at SIGTERM is killed, whichever daemon has started it.
func TestHubStays(tt *testing.T) {
	t := &keeperTest{T: tt, dir: filepath.Join(tt.TempDir(), "hubs")}
	for _, another := range []bool{false, true} {
		stop := t.start()
		t.k.Keep([]hypervisor.Machine{machine("web", 1)})
		pid := t.is("1", "web")
		if another {
			stop()
			stop = t.start()
		}
		t.k.mu.Lock()
		t.k.patience = 100 * time.Millisecond
		t.k.mu.Unlock()
		syscall.Kill(pid, syscall.SIGSTOP)
		t.k.Keep([]hypervisor.Machine{})
		t.is("1", "")
		stop()
	}
}

// LockHub fails for a lock file that is removed before it is locked.
func TestPlaceRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := stillLinked(f); err != nil {
		t.Error(err)
	}
	os.Remove(path)
	if stillLinked(f) == nil {
		t.Error("a file without a name")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if stillLinked(f) == nil {
		t.Error("a file whose name another has")
	}
}
