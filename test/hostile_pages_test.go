package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pegasus/backend/client"
	"pegasus/frontend"
	"pegasus/test/overwrite"
)

// A worker that keeps the lock of its domain's gate page, while another one of the domain ends, blocks neither the
// daemon nor other domains.
func TestWorkerKeepsThePagesLock(t *testing.T) {
	h := startHost(t, twoDomains)
	keeper, leaver := h.dial("one"), h.dial("one")
	load(t, keeper).works()
	load(t, leaver).works()
	page := h.workersPage(leaver.WorkerPID(), gatePage)
	const lock = 0xc0
	slot := slices.Index(slots(page), uint32(keeper.WorkerPID()))
	stop := make(chan struct{})
	var keeping sync.WaitGroup
	keeping.Go(func() { // as an attacker in control of the worker would
		for {
			select {
			case <-stop:
				return
			default:
				overwrite.Word(page, lock, uint32(slot)+1)
				time.Sleep(time.Millisecond)
			}
		}
	})
	defer keeping.Wait()
	defer close(stop)
	leaver.Close()
	eventually(t, soon, "the other worker's seat is free", func() bool {
		h.answers(time.Second)
		return h.domains()["one"].Processes == 1
	})
	load(t, h.dial("other")).works()
}

// slots returns the PIDs of the workers in a gate page.
func slots(page []byte) (pids []uint32) {
	for at := 4096; at < 4096+256*1024; at += 1024 {
		pids = append(pids, overwrite.At(page, at+4))
	}
	return pids
}

// The files that a worker shares with other processes, by a part of their links' targets.
const (
	gatePage   = "memfd:pegasus-gate "   // with its domain
	enginePage = "engines"               // with its domain
	bellPage   = "memfd:pegasus-bell "   // with all of the accelerator
	memoryPage = "memfd:pegasus-memory " // with all of the accelerator
)

// workersPage maps a file that a worker shares with others.
func (h *host) workersPage(worker int, name string) []byte {
	h.t.Helper()
	page, err := openPage(worker, name)
	if err != nil {
		h.t.Fatal(err)
	}
	defer page.Close()
	return overwrite.Map(h.t, page)
}

func openPage(worker int, name string) (*os.File, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", worker))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if to, _ := os.Readlink(f); strings.Contains(to, name) {
			return os.OpenFile(f, os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("worker %d has no %s", worker, name)
}

// answers checks that the daemon answers a request within a time, which begins after the connection is made.
func (h *host) answers(within time.Duration) {
	h.t.Helper()
	c, err := client.Dial(h.controlSocket())
	if err != nil {
		h.t.Error(err)
		return
	}
	defer c.Close()
	start := time.Now()
	if _, err := c.Domains(h.t.Context()); err != nil {
		h.t.Error(err)
	}
	if took := time.Since(start); took > within {
		h.t.Errorf("the daemon answers after %v, want %v", took, within)
	}
}

// A worker writes any value anywhere into its domain's gate page while another domain computes, which keeps its share.
func TestHostileGatePage(t *testing.T) { hostilePages(t, 4*time.Second, gatePage) }

// As TestHostileGatePage, with the page in which its domain queues for engines.
func TestHostileEnginePage(t *testing.T) { hostilePages(t, 4*time.Second, enginePage) }

// As TestHostileGatePage, with all memory that a worker shares with other processes.
func TestHostilePages(t *testing.T) {
	hostilePages(t, 4*time.Second, gatePage, enginePage, bellPage, memoryPage)
}

// hostilePages runs a domain that overwrites these pages for so long. Its workers are replaced when they are killed.
// Two honest domains compute beside that domain.
func hostilePages(t *testing.T, long time.Duration, names ...string) {
	h := startHost(t, fmt.Sprintf(theftConfig, 1, "accc", "", 256, 256)+"[[domain]]\nname = \"other\"\ncredits = 256\n")
	sharers := []sharer{{"victim", 256, 1}, {"other", 256, 2}}
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	// The hostile domain's computations, apart from the attacks by its worker.
	end := h.again("thief", 2, built(t, "bench/busy"), "--quiet", "--seconds", "3600", "--queue", "30", "--steps", fmt.Sprint(int(stepsPerMs(t))), "--no-check")
	defer end()
	random := seeded(t)
	before, start := h.domains(), time.Now()
	rounds := 0
	for limit := start.Add(long); time.Now().Before(limit); rounds++ {
		h.scribbleAsAWorker(random, limit, names)
	}
	after, passed := h.domains(), time.Since(start)
	t.Logf("%d rounds in %v", rounds, passed)
	for _, s := range sharers { // the hostile domain's time is as its workers claim
		got := time.Duration(after[s.name].GPU - before[s.name].GPU)
		t.Logf("%s got %v", s.name, got)
		if want := passed*95/300 - rotation - longest; got < want {
			t.Errorf("%s got %v of %v, want %v", s.name, got, passed, want)
		}
	}
}

// dialWithin returns a guest process of a domain, or nil if it isn't served in time.
func dialWithin(d time.Duration, path string) *frontend.Client {
	clients := make(chan *frontend.Client)
	late := make(chan struct{})
	go func() {
		c, err := frontend.Dial(path)
		if err != nil {
			c = nil
		}
		select {
		case clients <- c:
		case <-late:
			if c != nil {
				c.Close()
			}
		}
	}()
	select {
	case c := <-clients:
		return c
	case <-time.After(d):
		close(late)
		return nil
	}
}

// scribbleAsAWorker runs a process of the hostile domain and overwrites its worker's shared memory until the worker is
// killed.
func (h *host) scribbleAsAWorker(random *rand.Rand, limit time.Time, names []string) {
	h.t.Helper()
	h.answers(time.Second)
	c := dialWithin(time.Second, h.socket("thief"))
	if c == nil {
		return // rejected, since its domain is being stopped, or its worker waits because of earlier writes
	}
	defer c.Close()
	var pages, old [][]byte
	for _, name := range names {
		var f *os.File
		eventually(h.t, soon, "the worker has "+name+" open, or has ended", func() bool {
			f, _ = openPage(c.WorkerPID(), name)
			return f != nil || !running(c.WorkerPID())
		})
		if f == nil {
			return // it closed its files as it ended
		}
		page := overwrite.Map(h.t, f)
		f.Close()
		pages, old = append(pages, page), append(old, slices.Clone(page))
	}
	for n := 0; time.Now().Before(limit) && running(c.WorkerPID()); n++ {
		i := n % len(pages)
		some := len(pages[i])
		if random.IntN(2) == 0 { // at a more sensitive place
			some = min(some, 2<<10<<random.IntN(7))
		}
		overwrite.Words(pages[i][:some], old[i], random, 20)
		if n%100 == 0 {
			h.answers(time.Second)
		}
		time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
	}
}

// Offset, in a domain's engine page, of the time for which its workers held the engine for kernels; a test of package
// engine pins it.
const heldAt = 33032

// A worker that computes while its domain's page claims that it does not is charged for its turns all the same: its
// victim keeps most of its share.
func TestWorkerHidesItsTime(t *testing.T) {
	for _, policy := range []string{"lag", "band"} {
		t.Run(policy, func(t *testing.T) {
			h := startHost(t, fmt.Sprintf(theftConfig, 1, policy, "", 256, 256))
			sharers := []sharer{{"victim", 256, 1}, {"thief", 256, 2}}
			h.run(sharers[0])
			end := h.again("thief", 2, built(t, "bench/busy"), "--quiet", "--seconds", "3600", "--queue", "30", "--steps", fmt.Sprint(int(stepsPerMs(t))), "--no-check")
			defer end()
			h.await(sharers)
			c := h.dial("thief")
			page := h.workersPage(c.WorkerPID(), enginePage)
			before, start := h.domains()["victim"].GPU, time.Now()
			for time.Since(start) < 3*time.Second {
				overwrite.Word(page, heldAt, 0)
				overwrite.Word(page, heldAt+8, 0)
				time.Sleep(50 * time.Microsecond)
			}
			got, passed := time.Duration(h.domains()["victim"].GPU-before), time.Since(start)
			t.Logf("the victim got %v of %v", got, passed)
			if got < passed*3/10 { // 0 to 4 % without the charge
				t.Errorf("the victim got %v of %v, want half of it, and 30 %% at least", got, passed)
			}
		})
	}
}
