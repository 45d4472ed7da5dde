package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/cuda"
	"pegasus/frontend"
)

// On a GPU, too, domains with allocations that sum to more than its memory all finish with correct results,
// whichever processes are killed meanwhile, and nothing is left.
func TestSwapOnNVIDIA(t *testing.T) {
	t.Parallel()
	h := startNVIDIA(t, "[[accelerator]]\nname = \"gpu0\"\nmemory = \"48MiB\"\nswap = \"160MiB\"\n"+eight)
	binary := program(t, "swap")
	var all []*exec.Cmd
	for i := range 5 {
		rounds := "4"
		if i == 0 {
			rounds = "100000" // to be killed
		}
		cmd := h.guest(fmt.Sprintf("d%d", i), binary, "24", rounds, fmt.Sprint(i))
		out := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	eventually(t, 2*time.Minute, "memory is swapped", func() bool {
		a, d := h.accelerators()[0], h.domains()
		if a.MemoryUsed > a.Memory+4<<20 {
			t.Logf("%d of %d bytes are in use", a.MemoryUsed, a.Memory)
		}
		return d["d0"].SwapOut > 0 && a.MemoryAllocated > a.Memory
	})
	all[0].Process.Kill()
	all[0].Wait()
	for i, cmd := range all[1:] {
		if err := cmd.Wait(); err != nil || fmt.Sprint(cmd.Stdout) != "right\n" {
			t.Errorf("domain %d: %v\n%s", i+1, err, cmd.Stdout)
		}
	}
	var outs, ins uint64
	for _, d := range h.domains() {
		outs, ins = outs+d.SwapOut, ins+d.SwapIn
	}
	if t.Logf("%d bytes left the device, %d came back", outs, ins); outs == 0 || ins == 0 {
		t.Error("nothing was swapped")
	}
	eventually(t, soon, "all memory is free again", func() bool {
		a := h.accelerators()[0]
		return a.MemoryAllocated == 0 && a.MemoryUsed == 0
	})
}

// A process that dies or ends while it waits for memory that a kernel uses delays no other waiting process.
func TestDeathsWhileAskingOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, "[[accelerator]]\nname = \"gpu0\"\nmemory = \"48MiB\"\nswap = \"160MiB\"\nkernel_timeout = \"1h\"\n"+eight)
	var clients []*frontend.Client
	var all []loaded
	var at []uint64
	begin := func(i int, kernel string) {
		t.Helper()
		c := h.dial(fmt.Sprintf("d%d", i))
		g := load(t, c)
		a, err := g.Alloc(24 << 20)
		if err == nil {
			err = g.launch(kernel, a, 7)
		}
		if err != nil {
			t.Fatal(err)
		}
		clients, all, at = append(clients, c), append(all, g), append(at, a)
	}
	begin(0, "endless")
	for i := 1; i < 4; i++ {
		begin(i, "store")
	}
	eventually(t, soon, "three wait", func() bool {
		d := h.domains()
		return d["d1"].Swapped != 0 && d["d2"].Swapped != 0 && d["d3"].Swapped != 0
	})
	killed, left := clients[1].WorkerPID(), clients[2].WorkerPID()
	syscall.Kill(killed, syscall.SIGKILL)
	clients[2].Close()
	eventually(t, soon, "two workers end while they wait", func() bool { return !running(killed) && !running(left) })
	syscall.Kill(clients[0].WorkerPID(), syscall.SIGKILL)
	if err := all[3].Synchronize(); err != nil {
		t.Fatal(err)
	}
	if err := all[3].launch("store", at[3], 8); err != nil {
		t.Fatal(err)
	}
	all[3].works()
	eventually(t, soon, "what is left is whose that lives", func() bool {
		a := h.accelerators()[0]
		return a.MemoryAllocated == a.MemoryUsed && a.MemoryUsed >= 24<<20 && a.MemoryUsed <= 32<<20
	})
}

// Segments of a domain are made, used and removed while others swap: their memory never leaves the device while a
// process has them attached.
func TestSharedSegmentsWhileSwappingOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, "[[accelerator]]\nname = \"gpu0\"\nmemory = \"64MiB\"\nswap = \"160MiB\"\n"+eight)
	load(t, h.dial("d3")) // keeps the domain alive
	binary, shm := program(t, "swap"), program(t, "shm")
	var others []*exec.Cmd
	for i := range 3 {
		cmd := h.guest(fmt.Sprintf("d%d", i), binary, "24", "100000", "1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		others = append(others, cmd)
	}
	eventually(t, 2*time.Minute, "memory is swapped", func() bool {
		d := h.domains()
		return d["d0"].SwapOut > 0 && d["d1"].SwapOut > 0
	})
	const size = "8392704"
	succeed(t, h.guest("d3", shm, "make", "7", size, "11"))
	for i := range 3 {
		succeed(t, h.guest("d3", shm, "use", "7", size, fmt.Sprint(11+i), fmt.Sprint(12+i)))
	}
	succeed(t, h.guest("d3", shm, "remove", "7"))
	for _, cmd := range others {
		cmd.Process.Kill()
		cmd.Wait()
	}
	eventually(t, soon, "all memory is free again", func() bool {
		a := h.accelerators()[0]
		return a.MemoryAllocated == 0 && a.MemoryUsed == 0
	})
}

// A domain's guaranteed memory on a GPU doesn't leave it for others.
func TestGuaranteeKeepsMemoryOnNVIDIA(t *testing.T) {
	guaranteeKeeps(t, startNVIDIA(t, strings.ReplaceAll(crowded, "cores = 2\n", "")+strings.Replace(guaranteed, "24MiB", "10MiB", 1)))
}

// The contexts' own memory never leaves the device, so an allocation gets at most the rest beside all contexts.
func TestContextsStayOnNVIDIA(t *testing.T) {
	const takes = 24 << 20 // as in testdata/hungry.c
	driver, env := hungry(t)
	h := startDriver(t, "[[accelerator]]\nname = \"gpu0\"\nmemory = \"100MiB\"\nswap = \"100MiB\"\n"+twoDomains[strings.Index(twoDomains, "[[domain]]"):], driver, env)
	one, other := load(t, h.dial("one")), load(t, h.dial("other"))
	shown := func(used uint64) {
		t.Helper()
		eventually(t, soon, fmt.Sprintf("%d bytes are in use", used), func() bool { return h.accelerators()[0].MemoryUsed == used })
	}
	shown(2 * takes)
	var at []uint64
	for _, c := range []loaded{one, other} { // 90 MiB in all, less 48
		if _, err := c.Alloc(44 << 20); err == nil {
			t.Error("more than is left beside contexts")
		}
		a, err := c.Alloc(40 << 20)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, a)
	}
	_, err := h.dial("one").NewContext(0, 0)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	for i := range 4 {
		c := []loaded{one, other}[i%2]
		if err := c.launch("store", at[i%2], uint32(i)); err != nil {
			t.Fatal(err)
		}
		if err := c.Synchronize(); err != nil {
			t.Fatal(err)
		}
	}
	if d := h.domains(); d["one"].Swapped != 40<<20 || d["one"].Memory != 64<<20 || d["other"].Swapped != 0 {
		t.Errorf("%+v", d)
	}
	if err := one.Destroy(); err != nil {
		t.Fatal(err)
	}
	shown(takes + 40<<20)
	if d := h.domains()["one"]; d.Swapped != 0 || d.Memory != 0 {
		t.Errorf("of what was away there are %d bytes left, of %d", d.Swapped, d.Memory)
	}
}

// Where memory may leave a device, a process is offered no more of it than there is beside the memory of others.
func TestSwapOffersWhatThereIsOnNVIDIA(t *testing.T) {
	gpu := startHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n[[domain]]\nname = \"gpu\"")
	if _, err := load(t, gpu.dial("gpu")).Alloc(100 << 20); err != nil {
		t.Fatal(err)
	}
	for swap, want := range map[string]uint64{"": 256 << 20, "swap = \"64MiB\"\n": 156 << 20} {
		h := newHost(t, fmt.Sprintf("[[accelerator]]\nname = \"gpu0\"\ntype = \"nvidia\"\nlibrary = %q\n%s%s", built(t, "guest/libcuda.so.1"), swap, oneDomain[strings.Index(oneDomain, "[[domain]]"):]))
		h.env = []string{"PEGASUS_SOCKET=" + filepath.Join(gpu.dir, "domains", "gpu.sock")}
		h.start()
		if a := h.accelerators()[0]; a.Memory > want || a.Memory < want-1<<20 {
			t.Errorf("with %q %d bytes are offered, want %d", swap, a.Memory, want)
		}
		h.stop()
	}
}

// Where the driver can't map memory, the daemon rejects swapping at its start, with the reason.
func TestSwapWithoutMappingOnNVIDIA(t *testing.T) {
	gpu := startHost(t, "[[accelerator]]\nname = \"soft0\"\nmemory = \"256MiB\"\n[[domain]]\nname = \"gpu\"")
	h := newHost(t, fmt.Sprintf("[[accelerator]]\nname = \"gpu0\"\ntype = \"nvidia\"\nlibrary = %q\nswap = \"64MiB\"\n", driverOf(t, "incapable")))
	h.env = []string{"PEGASUS_SOCKET=" + filepath.Join(gpu.dir, "domains", "gpu.sock")}
	if said := h.refuseToStart(); !strings.Contains(said, `accelerator "gpu0": type = "nvidia": swap = "64MiB": the driver of`) || strings.Count(said, "\n") > 1 {
		t.Errorf("the daemon says %q", said)
	}
}
