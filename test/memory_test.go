package test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"pegasus/cuda"
)

const quotas = oneAccelerator + `
[[domain]]
name = "small"
memory = "64MiB"
[[domain]]
name = "big"
`

// A quota applies to all processes of a domain together, and only to that domain.
func TestQuota(t *testing.T) {
	h := startHost(t, quotas)
	a, b, big := load(t, h.dial("small")), load(t, h.dial("small")), load(t, h.dial("big"))
	at, err := a.Alloc(40 << 20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Alloc(40 << 20)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	_, err = b.Alloc(40 << 20)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	if _, err := b.Alloc(16 << 20); err != nil {
		t.Fatal(err)
	}
	if err := a.Free(at); err != nil {
		t.Fatal(err)
	}
	if err := a.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Alloc(40 << 20); err != nil {
		t.Fatalf("after the other process freed its memory: %v", err)
	}
	if _, err := big.Alloc(512 << 20); err != nil {
		t.Fatal(err)
	}
	big.works()
	if used := h.domains()["small"].Memory; used < 56<<20 || used > 64<<20 {
		t.Errorf("the domain is shown with %d bytes", used)
	}
}

// Programs that run in sequence can each use all of their domain's quota and processes, or of the accelerator.
func TestOneAfterTheOther(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneAccelerator+"[[domain]]\nname = \"small\"\nmemory = \"64MiB\"\nprocesses = 1\n")
	leaver := program(t, "leaver")
	for i := range 16 {
		how, domain, mib := []string{"exit", "kill"}[i%2], "small", "60"
		if i >= 10 {
			domain, mib = fmt.Sprint("other", i%3), "600"
		}
		out, err := h.guest(domain, leaver, mib, how).CombinedOutput()
		if killed := err != nil && err.Error() == "signal: killed"; (err != nil && !killed) || killed != (how == "kill") {
			t.Fatalf("program %d: %v\n%s", i, err, out)
		}
	}
}

// A domain that reaches its quota again and again costs the others no accelerator time.
func TestQuotaCostsOthersNothing(t *testing.T) {
	h := startHost(t, quotas)
	h.run(sharer{"big", 256, 2})
	eventually(t, soon, "the other domain computes", func() bool { return h.domains()["big"].GPU > 0 })
	time.Sleep(time.Second)
	busy := func() time.Duration { return time.Duration(h.domains()["big"].GPU) }
	greedy := load(t, h.dial("small"))
	refused := 0
	grab := func(d time.Duration) {
		for start := time.Now(); time.Since(start) < d; time.Sleep(100 * time.Microsecond) {
			if _, err := greedy.Alloc(1 << 20); errors.Is(err, cuda.ErrorOutOfMemory) {
				refused++
			}
		}
	}
	// In short turns, so that other load on the host affects both alike.
	measure := func(how func(time.Duration)) float64 {
		before, start := busy(), time.Now()
		how(200 * time.Millisecond)
		return float64(busy()-before) / float64(time.Since(start))
	}
	const turns = 20
	steadily(t, func() error {
		var alone, beside float64
		for range turns {
			alone += measure(time.Sleep) / turns
			beside += measure(grab) / turns
		}
		t.Logf("busy for %.1f %% of the time alone, %.1f %% beside", 100*alone, 100*beside)
		if beside < .95*alone {
			return fmt.Errorf("the accelerator worked %.1f %% of the time for the other domain, %.1f %% before", 100*beside, 100*alone)
		}
		return nil
	})
	if refused == 0 {
		t.Error("no allocation was refused")
	}
}

// An allocation that reuses another program's memory contains zeros.
func TestFreedMemoryIsNeverReadable(t *testing.T) {
	h := startHost(t, quotas)
	const size = 8 << 20
	secret := bytes.Repeat([]byte{0xa5}, size)
	for round := range 6 {
		owner := load(t, h.dial("big"))
		for range 3 {
			at, err := owner.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			if err := owner.CopyIn(at, secret); err != nil {
				t.Fatal(err)
			}
			if round%2 == 0 {
				if err := owner.Free(at); err != nil {
					t.Fatal(err)
				}
			}
		}
		next := owner
		if round%3 == 2 {
			next = load(t, h.dial("small"))
		}
		for range 3 {
			at, err := next.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, size)
			if err := next.CopyOut(got, at); err != nil {
				t.Fatal(err)
			}
			if i := bytes.IndexByte(got, 0xa5); i >= 0 {
				t.Fatalf("round %d: byte %d of fresh memory holds the former owner's data", round, i)
			}
		}
	}
}
