package test

import (
	"bufio"
	"io"
	"syscall"
	"testing"

	"pegasus/cuda"
)

const sharers = `
[[accelerator]]
name = "soft0"
memory = "256MiB"
[[domain]]
name = "one"
memory = "16MiB"
[[domain]]
name = "other"
`

// Processes of a domain share device memory, also after its creator has ended; those of another domain find none; a
// removed segment stays for processes that have it attached, also if these are killed in the end; and the next owner of
// the memory finds zeros.
func TestSharedSegments(t *testing.T) {
	h := startHost(t, sharers)
	shm := program(t, "shm")
	run := func(domain string, args ...string) {
		t.Helper()
		succeed(t, h.guest(domain, shm, args...))
	}
	const size = "8388608"
	keeper := load(t, h.dial("one")) // keeps the domain alive
	run("one", "make", "7", size, "11")
	run("one", "use", "7", size, "11", "12")
	run("one", "use", "7", "4096", "12", "12")
	run("other", "absent", "7")
	for range 2 { // segments are freed with the domain's last process
		run("other", "make", "7", "4096", "3")
		eventually(t, soon, "the domain is empty", func() bool { return h.domains()["other"].Processes == 0 })
	}
	memory := func() uint64 { return h.domains()["one"].Memory }
	only := func(what string, bytes uint64) { // after the workers of ended programs have ended
		t.Helper()
		eventually(t, soon, what, func() bool { return memory() == bytes && h.accelerators()[0].MemoryUsed == bytes })
	}
	only("domain and accelerator are shown with the segment's memory", 8<<20)

	for _, killed := range []bool{false, true} {
		holder := h.guest("one", shm, "hold", "7", "12")
		in, err := holder.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := holder.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		background(t, holder)
		if said, err := bufio.NewReader(out).ReadString('\n'); said != "holds\n" {
			t.Fatalf("%q, %v", said, err)
		}
		run("one", "remove", "7")
		run("one", "absent", "7")
		run("one", "full", "8", "9000000") // attached memory counts
		only("there is memory while the segment is held", 8<<20)
		if killed {
			holder.Process.Kill()
			holder.Wait()
		} else {
			io.WriteString(in, "go on")
			in.Close()
			if err := holder.Wait(); err != nil {
				t.Error(err)
			}
		}
		only("the memory is free again", 0)
		run("one", "make", "7", size, "12")
	}
	_, err := keeper.Alloc(9 << 20)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	if _, err := keeper.Alloc(7 << 20); err != nil {
		t.Errorf("beside a segment of half the quota: %v", err)
	}
	keeper.works()
}

// Invalid calls return errors.
func TestSharedSegmentsMistakes(t *testing.T) {
	h := startHost(t, sharers)
	succeed(t, h.guest("one", program(t, "shm"), "wrong", "512"))
	eventually(t, soon, "the memory is free again", func() bool { return h.accelerators()[0].MemoryUsed == 0 })
}

// Programs written for Gdev find its keys, commands and number of segments.
func TestSharedSegmentsAsGdev(t *testing.T) {
	h := startHost(t, sharers)
	succeed(t, h.guest("one", program(t, "shm"), "gdev"))
	eventually(t, soon, "the memory is free again", func() bool { return h.accelerators()[0].MemoryUsed == 0 })
}

// A daemon that takes over keeps the segments, and frees removed ones if the processes that had them attached ended
// before.
func TestSharedSegmentsOutliveTheDaemon(t *testing.T) {
	h := startSystemHost(t, sharers)
	shm := program(t, "shm")
	keeper := load(t, h.dial("one"))
	succeed(t, h.guest("one", shm, "make", "7", "65536", "11"))
	h.kill()
	h.start()
	succeed(t, h.guest("one", shm, "use", "7", "65536", "11", "12"))
	eventually(t, soon, "the domain is shown with the segment's memory", func() bool { return h.domains()["one"].Memory == 65536 })

	worker := workerOf(t, h, hold(t, h, "one", "7", "12").Process.Pid)
	succeed(t, h.guest("one", shm, "remove", "7"))
	h.kill()
	syscall.Kill(worker, syscall.SIGKILL)
	eventually(t, soon, "the worker ends", func() bool { return !running(worker) })
	h.start()
	eventually(t, soon, "the segment's memory is free", func() bool {
		return h.domains()["one"].Memory == 0 && h.accelerators()[0].MemoryUsed == 0
	})
	keeper.works()
}
