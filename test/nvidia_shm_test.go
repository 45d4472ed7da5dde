package test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"pegasus/cuda"
)

const nvidiaSharers = `
[[accelerator]]
name = "gpu0"
memory = "256MiB"
[[domain]]
name = "one"
memory = "24MiB"
[[domain]]
name = "other"
`

// holder is a process that keeps a segment attached until goOn is called.
type holder struct {
	*exec.Cmd
	in io.WriteCloser
}

func hold(t *testing.T, h *host, domain string, args ...string) *holder {
	t.Helper()
	return holding(t, h.guest(domain, program(t, "shm"), append([]string{"hold"}, args...)...))
}

func holding(t *testing.T, c *exec.Cmd) *holder {
	t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	background(t, c)
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "holds\n" {
		t.Fatalf("%q, %v", said, err)
	}
	return &holder{c, in}
}

// goOn lets it check the segment and end.
func (p *holder) goOn(t *testing.T) {
	t.Helper()
	p.in.Close()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func (p *holder) kill() {
	p.Process.Kill()
	p.Wait()
}

// On a GPU, a process that attaches a segment has the memory of the processes before it, and the memory is in the
// domain's file while no process has the segment attached. Only processes of the domain find it, it counts once, and it
// is freed when it was removed and no process has it attached.
func TestSharedSegmentsOnNVIDIA(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"", "capable"} {
		t.Run("driver"+driver, func(t *testing.T) {
			so := built(t, "guest/libcuda.so.1")
			if driver != "" {
				so = driverOf(t, driver)
			}
			h := startDriver(t, nvidiaSharers, so)
			shm := program(t, "shm")
			run := func(domain string, args ...string) {
				t.Helper()
				succeed(t, h.guest(domain, shm, args...))
			}
			keeper := load(t, h.dial("one")) // keeps the domain alive
			only := func(what string, bytes uint64) {
				t.Helper()
				eventually(t, soon, fmt.Sprintf("%s: %d bytes are shown", what, bytes), func() bool {
					return h.domains()["one"].Memory == bytes && h.accelerators()[0].MemoryUsed == bytes
				})
			}
			const bytes = 8<<20 + 4096
			size := strconv.Itoa(bytes)
			run("one", "make", "7", size, "11")
			only("a segment that nobody has attached", 10<<20)
			run("one", "use", "7", size, "11", "12")
			run("one", "use", "7", "4096", "12", "12")
			run("other", "absent", "7")
			only("a segment that others had", 10<<20)

			one := hold(t, h, "one", "7", "13")
			other := hold(t, h, "one", "7", "14")
			run("one", "use", "7", size, "12", "13") // contents by one of them
			one.kill()                               // the process that allocated its memory
			run("one", "use", "7", size, "13", "14")
			only("a segment that one process has", 10<<20)
			other.goOn(t)
			run("one", "use", "7", size, "14", "15")
			last := hold(t, h, "one", "7", "15")
			run("one", "use", "7", size, "15", "16")
			last.kill() // the guest; its worker keeps the contents
			run("one", "use", "7", size, "16", "17")

			last = hold(t, h, "one", "7", "17")
			run("one", "remove", "7")
			run("one", "absent", "7")
			run("one", "full", "8", "16000000")
			only("a segment that was removed and is attached", 10<<20)
			last.goOn(t)
			only("a segment that was removed", 0)
			run("one", "make", "7", size, "18") // and begins with zeros
			run("one", "remove", "7")
			only("all were removed", 0)
			_, err := keeper.Alloc(26 << 20)
			wantResult(t, err, cuda.ErrorOutOfMemory)
			keeper.works()
		})
	}
}

// Invalid calls return errors.
func TestSharedSegmentsMistakesOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, "[[accelerator]]\nname = \"gpu0\"\nmemory = \"256MiB\"\n[[domain]]\nname = \"one\"\nmemory = \"67MiB\"\n")
	succeed(t, h.guest("one", program(t, "shm"), "wrong", "32")) // as many pages as fit
	eventually(t, soon, "the memory is free again", func() bool { return h.accelerators()[0].MemoryUsed == 0 })
}

// A driver without memory sharing between processes has no segments.
func TestSharedSegmentsAreRefusedOnNVIDIA(t *testing.T) {
	h := startDriver(t, oneDomain, driverOf(t, "incapable"))
	succeed(t, h.guest("one", program(t, "shm"), "refused"))
}

// workerOf returns a process's worker, from the daemon's log.
func workerOf(t *testing.T, h *host, pid int) int {
	t.Helper()
	log, err := os.ReadFile(h.log())
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(fmt.Sprintf(`process %d is served by worker (\d+)`, pid)).FindSubmatch(log)
	if said == nil {
		t.Fatalf("process %d isn't served", pid)
	}
	worker, _ := strconv.Atoi(string(said[1]))
	return worker
}

// The contents written by a process that is killed while its kernel runs are there for the next process. The contents
// written by a killed worker are there if another worker has them, too; otherwise there are zeros. None of this needs
// the daemon, except to connect.
func TestSharedSegmentsOfTheKilledOnNVIDIA(t *testing.T) {
	t.Parallel()
	h := startNVIDIA(t, nvidiaSharers)
	h.stop()
	h.private = false
	h.start()
	shm := program(t, "shm")
	run := func(args ...string) {
		t.Helper()
		succeed(t, h.guest("one", shm, args...))
	}
	const size = "8388608"
	keeper := load(t, h.dial("one"))
	run("make", "7", size, "11")
	spins := holding(t, h.guest("one", shm, "spin", "7", "12"))
	spins.kill()
	ended := func(pid int) {
		t.Helper()
		worker := workerOf(t, h, pid)
		eventually(t, soon, "the worker ends", func() bool { return !running(worker) })
	}
	ended(spins.Process.Pid) // so that no process has it attached
	run("use", "7", size, "12", "13")
	fails := h.guest("one", shm, "fail", "7", "17")
	succeed(t, fails)
	ended(fails.Process.Pid)
	run("use", "7", size, "17", "13")

	one := hold(t, h, "one", "7", "14")
	other := hold(t, h, "one", "7", "14")
	endWorker := func(p *holder) {
		t.Helper()
		if err := syscall.Kill(workerOf(t, h, p.Process.Pid), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended(p.Process.Pid)
		p.kill()
	}
	endWorker(one)
	run("use", "7", size, "13", "14")
	h.kill()
	h.start()
	eventually(t, soon, "the domain is shown with the segment's memory", func() bool { return h.domains()["one"].Memory == 8<<20 })
	third := hold(t, h, "one", "7", "14")
	other.goOn(t)
	third.goOn(t)
	run("use", "7", size, "14", "15")
	last := hold(t, h, "one", "7", "15")
	endWorker(last)
	run("use", "7", size, "0", "16")
	run("remove", "7")
	eventually(t, soon, "all memory is free", func() bool { return h.domains()["one"].Memory == 0 && h.accelerators()[0].MemoryUsed == 0 })
	keeper.works()
}

// However many processes start and end, and are killed meanwhile, their completed counts in a segment stay.
func TestSharedSegmentsCountOnNVIDIA(t *testing.T) {
	t.Parallel()
	h := startNVIDIA(t, nvidiaSharers)
	shm := program(t, "shm")
	keeper := load(t, h.dial("one"))
	succeed(t, h.guest("one", shm, "make", "7", "4096", "0"))
	path := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	rounds, times := 12, "15"
	if testing.Short() {
		rounds = 3
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range rounds {
				c := h.guest("one", shm, "count", "7", times, path)
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
	over := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			c := h.guest("one", shm, "count", "7", "1000000", path)
			var said bytes.Buffer
			c.Stdout, c.Stderr = &said, &said
			if err := c.Start(); err != nil {
				t.Error(err)
				return
			}
			ended := make(chan struct{})
			go func() { c.Wait(); close(ended) }()
			select {
			case <-over:
			case <-ended:
				t.Errorf("it has ended by itself:\n%s", said.String())
			case <-time.After(time.Duration(50+rand.IntN(400)) * time.Millisecond):
			}
			c.Process.Kill()
			<-ended
			select {
			case <-over:
				return
			default:
			}
		}
	})
	all.Wait()
	close(over)
	killer.Wait()
	succeed(t, h.guest("one", shm, "count", "7", "1", path))
	succeed(t, h.guest("one", shm, "remove", "7"))
	eventually(t, soon, "all memory is free", func() bool { return h.domains()["one"].Memory == 0 && h.accelerators()[0].MemoryUsed == 0 })
	keeper.works()
}
