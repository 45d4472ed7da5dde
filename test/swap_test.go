package test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pegasus/cuda"
)

// swapping is an accelerator for eight domains that may use three times its memory.
const swapping = `
[[accelerator]]
name = "soft0"
cores = 2
memory = "64MiB"
swap = "160MiB"
`

// crowded is a smaller version that takes seconds.
const crowded = `
[[accelerator]]
name = "soft0"
cores = 2
memory = "32MiB"
swap = "80MiB"
`

const eight = `
[[domain]]
name = "d0"
[[domain]]
name = "d1"
[[domain]]
name = "d2"
[[domain]]
name = "d3"
[[domain]]
name = "d4"
[[domain]]
name = "d5"
[[domain]]
name = "d6"
[[domain]]
name = "d7"
`

// Eight domains with allocations that sum to three times the device memory all finish with correct results, and the
// daemon reports the memory that left the device.
func TestEightDomainsSwap(t *testing.T) {
	h := startHost(t, crowded+eight)
	binary := program(t, "swap")
	var all []*exec.Cmd
	var outs []*strings.Builder
	for i := range 8 {
		cmd := h.guest(fmt.Sprintf("d%d", i), binary, "12", "4", fmt.Sprint(i))
		out := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all, outs = append(all, cmd), append(outs, out)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for i, cmd := range all {
			if err := cmd.Wait(); err != nil || outs[i].String() != "right\n" {
				t.Errorf("domain %d: %v\n%s", i, err, outs[i])
			}
		}
	}()
	for above, beyond := false, 0; ; {
		select {
		case <-over:
			if !above {
				t.Error("the domains were never seen with more than the device memory")
			}
			var outs, ins uint64
			for _, d := range h.domains() {
				outs, ins = outs+d.SwapOut, ins+d.SwapIn
			}
			if t.Logf("%d bytes left the device, %d came back", outs, ins); outs == 0 || ins == 0 {
				t.Error("nothing was swapped")
			}
			return
		case <-time.After(20 * time.Millisecond):
			a := h.accelerators()[0]
			above = above || a.MemoryAllocated > a.Memory
			// A worker counts the memory that it needs as its own before it checks for room, and all workers may do so
			// at once. So the sum may exceed the memory now and then, but not all the time.
			if a.MemoryUsed <= a.Memory+4<<20 {
				beyond = 0
			} else if beyond++; beyond == 5 {
				t.Errorf("%d of %d bytes of the device are in use", a.MemoryUsed, a.Memory)
			}
		}
	}
}

// Without swapping, an allocation beyond the free memory fails, and no other process is affected; with swapping the
// same holds beyond its limit.
func TestOutOfMemory(t *testing.T) {
	for _, c := range []struct {
		name, config string
		each         uint64
	}{
		{"without", "[[accelerator]]\nname = \"soft0\"\ncores = 2\nmemory = \"64MiB\"\n", 8 << 20},
		{"with", swapping, 28 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := startHost(t, c.config+eight)
			var all []loaded
			for i := range 8 {
				g := load(t, h.dial(fmt.Sprintf("d%d", i)))
				if _, err := g.Alloc(c.each); err != nil {
					t.Fatalf("domain %d: %v", i, err)
				}
				all = append(all, g)
			}
			free, total, err := all[0].MemInfo()
			if err != nil || free != 0 || total > 64<<20 {
				t.Errorf("%d of %d bytes are free, %v", free, total, err)
			}
			_, err = all[0].Alloc(1 << 20)
			wantResult(t, err, cuda.ErrorOutOfMemory)
		})
	}
}

const guaranteed = eight + `
[[domain]]
name = "kept"
memory_guarantee = "24MiB"
`

// A domain's guaranteed memory is available from its first process on, whatever others allocate, until the guarantee is
// withdrawn.
func TestGuarantee(t *testing.T) {
	h := startHost(t, "[[accelerator]]\nname = \"soft0\"\ncores = 2\nmemory = \"64MiB\"\n"+guaranteed)
	kept, other := load(t, h.dial("kept")), load(t, h.dial("d0"))
	if free, _, err := other.MemInfo(); err != nil || free > 40<<20 {
		t.Errorf("%d bytes are free for others, %v", free, err)
	}
	if _, err := other.Alloc(36 << 20); err != nil {
		t.Fatal(err)
	}
	_, err := other.Alloc(8 << 20)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	if _, err := kept.Alloc(16 << 20); err != nil {
		t.Fatal(err)
	}
	_, err = other.Alloc(8 << 20)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	if _, err := h.try("set", "d0", "memory_guarantee=41MiB"); err == nil || !strings.Contains(err.Error(), "memory_guarantee: the domains on soft0 would be guaranteed 68157440 bytes together, of 67108864") {
		t.Errorf("more is guaranteed than there is: %v", err)
	}
	h.pegasus("set", "kept", "memory_guarantee=0")
	eventually(t, soon, "what is promised no more can be had", func() bool {
		_, err = other.Alloc(8 << 20)
		return err == nil
	})
	h.configure(strings.Replace(guaranteed, `memory_guarantee = "24MiB"`, `memory_guarantee = "20MiB"`, 1) + "[[accelerator]]\nname = \"soft0\"\ncores = 2\nmemory = \"64MiB\"\n")
	h.pegasus("reload")
	if d := h.domains()["kept"]; d.MemoryGuarantee != 20<<20 {
		t.Errorf("after a reload %d bytes are guaranteed", d.MemoryGuarantee)
	}
	eventually(t, soon, "what is promised again can't be had by others", func() bool {
		var at uint64
		if at, err = other.Alloc(2 << 20); err == nil {
			other.Free(at)
			return false
		}
		return true
	})
	wantResult(t, err, cuda.ErrorOutOfMemory)
	if _, err := kept.Alloc(4 << 20); err != nil {
		t.Errorf("what was promised again: %v", err)
	}
}

// Guaranteed memory does not leave the device for others, and memory that has left it is freed with its process.
func TestGuaranteeKeepsMemoryOnTheDevice(t *testing.T) {
	guaranteeKeeps(t, startHost(t, crowded+strings.Replace(guaranteed, "24MiB", "10MiB", 1)))
}

func guaranteeKeeps(t *testing.T, h *host) {
	kept := load(t, h.dial("kept"))
	at, err := kept.Alloc(10 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.launch("store", at, 7); err != nil {
		t.Fatal(err)
	}
	if err := kept.Synchronize(); err != nil {
		t.Fatal(err)
	}
	var others []*exec.Cmd
	binary := program(t, "swap")
	for i := range 4 {
		others = append(others, h.guest(fmt.Sprintf("d%d", i), binary, "12", "3", "1"))
	}
	for _, cmd := range others {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	var out uint64
	for name, d := range h.domains() {
		if out += d.SwapOut; name == "kept" && d.SwapOut+d.Swapped != 0 {
			t.Errorf("%d bytes of what was promised left the device", d.SwapOut)
		}
	}
	if out == 0 {
		t.Error("nothing of the others left it")
	}
	eventually(t, soon, "the others' memory is gone", func() bool {
		a := h.accelerators()[0]
		return a.MemoryAllocated == 10<<20 && a.MemoryUsed == 10<<20
	})
	free, total, err := kept.MemInfo()
	if err != nil || free >= total || total > 32<<20 {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
}

// A process that dies while its memory is requested, or while it requests others', does not affect the others.
func TestDeathsWhileSwapping(t *testing.T) {
	t.Parallel()
	h := startHost(t, swapping+eight)
	binary := program(t, "swap")
	var all []*exec.Cmd
	for i := range 6 {
		rounds := "5"
		if i < 2 {
			rounds = "100000" // to be killed
		}
		cmd := h.guest(fmt.Sprintf("d%d", i), binary, "28", rounds, "1")
		out := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	eventually(t, 2*time.Minute, "memory is swapped", func() bool {
		d := h.domains()
		return d["d0"].SwapOut > 0 && d["d1"].SwapOut > 0
	})
	for _, cmd := range all[:2] {
		cmd.Process.Kill()
		cmd.Wait()
	}
	for i, cmd := range all[2:] {
		if err := cmd.Wait(); err != nil {
			t.Errorf("domain %d: %v\n%s", i+2, err, cmd.Stdout)
		}
	}
	eventually(t, soon, "all memory is free again", func() bool {
		a := h.accelerators()[0]
		return a.MemoryAllocated == 0 && a.MemoryUsed == 0
	})
}
