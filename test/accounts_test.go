package test

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Whatever stream kernels are launched in, their domain is charged for about as long as they kept the device busy, and so it is
// for copies inside the device, which hold the engine for kernels.
func TestAccounts(t *testing.T) {
	accounts := program(t, "accounts")
	for name, h := range map[string]*host{"soft": startHost(t, oneDomain), "nvidia": startNVIDIA(t, oneDomain)} {
		for _, stream := range []string{"legacy", "own", "aside", "thread", "copies"} {
			t.Run(name+"/"+stream, func(t *testing.T) {
				before := h.domains()["one"]
				said := string(succeed(t, h.guest("one", accounts, stream, "300")))
				busy, err := strconv.ParseInt(strings.TrimSpace(said), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				after := h.domains()["one"]
				compute, copied := after.Compute-before.Compute, after.Copy-before.Copy
				t.Logf("busy for %v: computed for %v, copied for %v", time.Duration(busy), time.Duration(compute), time.Duration(copied))
				if compute < busy/10 || compute > busy+int64(50*time.Millisecond) || copied > compute/10 {
					t.Errorf("busy for %v: computed for %v, copied for %v", time.Duration(busy), time.Duration(compute), time.Duration(copied))
				}
			})
		}
	}
}

// A domain that only fills memory shares the engine for kernels with one that only computes by their credits, also where each
// engine has accounts of its own: what is charged is the engine that was held.
func TestFillsAndKernels(t *testing.T) {
	for _, policy := range []string{"accc", "lag"} {
		t.Run(policy, func(t *testing.T) {
			h := startHost(t, oneAccelerator+"policy = \""+policy+"\"\naccounts = \"mrq\"\n[[domain]]\nname = \"fills\"\n[[domain]]\nname = \"computes\"\n")
			const bytes = 16 << 20
			var stop atomic.Bool
			var fillers sync.WaitGroup
			for range 2 {
				c := h.dial("fills")
				x := newContext(t, c)
				at, err := x.Alloc(bytes)
				if err != nil {
					t.Fatal(err)
				}
				fillers.Go(func() {
					for !stop.Load() {
						for range 4 {
							if err := x.Fill(0, at, 1, bytes); err != nil {
								t.Error(err)
								return
							}
						}
						if err := x.Synchronize(); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			defer fillers.Wait()
			defer stop.Store(true)
			background(t, h.bench("computes", "busy", "--seconds", "3600", "--queue", "8", "--no-check"))
			both := []sharer{{name: "fills"}, {name: "computes"}}
			h.await(both)
			checkShares(t, h.over(3*time.Second), equal(both), 10)
			if d := h.domains()["fills"]; d.Copy != 0 {
				t.Errorf("fills are charged with %v of copying", time.Duration(d.Copy))
			}
		})
	}
}
