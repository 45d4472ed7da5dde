package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pegasus/test/seeds"
)

// A domain is charged for all the time for which a dying process of it holds the engine.
func TestDeadHolderIsCharged(t *testing.T) {
	const hold = 300 * time.Millisecond
	for _, how := range []string{"its worker is killed", "its worker and the daemon are killed", "it leaves"} {
		t.Run(how, func(t *testing.T) {
			h := startSystemHost(t, strings.Replace(twoDomains, `"1s"`, `"1h"`, 1))
			c, other := h.dial("one"), load(t, h.dial("other"))
			x := load(t, c)
			at, err := x.Alloc(4096)
			if err != nil {
				t.Fatal(err)
			}
			x.works()
			before := h.domains()["one"]
			asked := time.Now()
			if err := x.launch("endless", at); err != nil {
				t.Fatal(err)
			}
			// No other part of the worker takes so long: the kernel is compiled, and has the engine.
			eventually(t, soon, "the kernel computes", func() bool {
				return h.domains()["one"].WorkerCPU > before.WorkerCPU+int64(50*time.Millisecond)
			})
			time.Sleep(hold) // the engine is held; this waits for no event
			switch how {
			case "it leaves":
				c.Close()
			case "its worker and the daemon are killed":
				h.kill()
				fallthrough
			default:
				if err := syscall.Kill(c.WorkerPID(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if h.daemon == nil {
				h.start()
			}
			eventually(t, soon, "its worker is reaped", func() bool { return h.domains()["one"].Processes == 0 })
			charged, passed := time.Duration(h.domains()["one"].Compute-before.Compute), time.Since(asked)
			if charged < hold*9/10 || charged > passed {
				t.Errorf("%v are charged, of %v", charged, passed)
			}
			if a := h.accelerators()[0]; a.Uncharged != 0 || a.Charged != a.GPU || a.GPU < int64(charged) {
				t.Errorf("engines were held for %d ns, %d ns are charged, the difference is said to be %d", a.GPU, a.Charged, a.Uncharged)
			}
			other.works()
		})
	}
}

// Workers, guests and the daemon are killed at random while eight domains compute: all the time for which engines were
// held is charged to the domains.
func TestConservation(t *testing.T) { conservation(t, 20, 0) }

// conservation kills processes until that many have been killed, and for at least that long.
func conservation(t *testing.T, kills int, long time.Duration) {
	random := rand.New(rand.NewPCG(seeds.Fixed(t), 0))
	const domains = 8
	config := oneAccelerator
	for i := range domains {
		config += fmt.Sprintf("[[domain]]\nname = \"d%d\"\n", i)
	}
	h := startSystemHost(t, config)
	var stop atomic.Bool
	var guests sync.WaitGroup
	pids := make([]atomic.Int64, domains)
	for i := range domains {
		load := []string{"busy", "--queue", []string{"2", "8"}[i%2]}
		guests.Go(func() {
			for !stop.Load() {
				// Not by `pegasus run`, which starts a private daemon where there is none.
				cmd := exec.Command(built(t, "bench/"+load[0]), append(load[1:], "--quiet", "--seconds", "3600", "--no-check")...)
				cmd.Env = append(os.Environ(), "PEGASUS_SOCKET="+h.socket(fmt.Sprint("d", i)), "LD_LIBRARY_PATH="+filepath.Dir(built(t, "guest/libcuda.so.1")))
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				pids[i].Store(int64(cmd.Process.Pid))
				cmd.Wait() // it is killed, or there was no daemon
			}
		})
	}
	end := func() {
		stop.Store(true)
		for i := range pids {
			if pid := int(pids[i].Load()); pid != 0 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	defer func() { end(); guests.Wait() }()
	balanced := func(after string) {
		t.Helper()
		if a := h.accelerators()[0]; a.Uncharged != 0 {
			t.Fatalf("after %s: engines were held for %d ns, and %d ns are charged", after, a.GPU, a.Charged)
		}
	}
	began, killed, daemons := time.Now(), 0, 0
	for killed < kills || time.Since(began) < long {
		workers := h.workers()
		if len(workers) < domains/2 { // they are starting
			time.Sleep(10 * time.Millisecond)
			continue
		}
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // a random moment
		what := "the end of the daemon"
		switch n := random.IntN(10); {
		case n == 0 || killed == kills/2:
			h.kill()
			for range random.IntN(3) { // some die while no daemon runs
				syscall.Kill(workers[random.IntN(len(workers))], syscall.SIGKILL)
				killed++
			}
			h.start()
			daemons++
		case n < 6:
			pid := workers[random.IntN(len(workers))]
			what = fmt.Sprint("the end of worker ", pid)
			syscall.Kill(pid, syscall.SIGKILL)
		default:
			pid := int(pids[random.IntN(domains)].Load())
			what = fmt.Sprint("the end of guest ", pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
		killed++
		balanced(what)
	}
	end()
	guests.Wait()
	eventually(t, soon, "all are gone", func() bool {
		n := 0
		for _, d := range h.domains() {
			n += d.Processes
		}
		return n == 0
	})
	var sum int64
	for _, d := range h.domains() {
		sum += d.GPU
	}
	a := h.accelerators()[0]
	if sum != a.GPU || a.Charged != a.GPU {
		t.Errorf("engines were held for %d ns, domains have used %d ns, a difference of %v", a.GPU, sum, time.Duration(a.GPU-sum))
	}
	t.Logf("%d were killed in %v, the daemon %d times; engines were held for %v", killed, time.Since(began), daemons, time.Duration(a.GPU))
}

// workers returns the processes that serve guests, by the daemon's records.
func (h *host) workers() (pids []int) {
	paths, _ := filepath.Glob(filepath.Join(h.dir, "workers", "*.json"))
	for _, path := range paths {
		var r struct{ PID int }
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &r) == nil && r.PID > 0 {
			pids = append(pids, r.PID)
		}
	}
	return pids
}
