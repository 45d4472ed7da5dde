package switches

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// programs returns the table's programs, from the kernel's list.
func programs(t testing.TB, table *Table) (all []*ebpf.Program) {
	t.Helper()
	for _, f := range table.files[1:] {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`prog_id:\s*(\d+)`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("fdinfo does not name the program: %s", text)
		}
		id, _ := strconv.Atoi(string(m[1]))
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		all = append(all, p)
	}
	return all
}

// TestCost prints the cost of each run of the programs, as the kernel measures it, for unwatched threads and for two
// watched ones that take turns.
func TestCost(t *testing.T) {
	table := loaded(t)
	if table == nil {
		return
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	names := []string{"wake-up", "switch"}
	all := programs(t, table)
	measure := func(who string) {
		var before [2]*ebpf.ProgramStats
		for i, p := range all {
			before[i], _ = p.Stats()
		}
		turns(t, table, who == "watched")
		for i, p := range all {
			after, err := p.Stats()
			if err != nil {
				t.Fatal(err)
			}
			n := after.RunCount - before[i].RunCount
			if n == 0 || after.RecursionMisses != before[i].RecursionMisses {
				t.Fatalf("%s: %+v after %+v", names[i], after, before[i])
			}
			each := (after.Runtime - before[i].Runtime) / time.Duration(n)
			t.Logf("%s threads: %d times a %s, %v each", who, n, names[i], each)
			if each > 10*time.Microsecond {
				t.Errorf("a %s costs %v", names[i], each)
			}
		}
	}
	measure("unwatched")
	measure("watched")
}

// turns makes two threads on one processor wake each other many times.
func turns(t *testing.T, table *Table, watch bool) {
	t.Helper()
	const times = 50000
	cpu := last(t)
	var pipes [2][2]int
	for i := range pipes {
		if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipes[i][0])
		defer unix.Close(pipes[i][1])
	}
	done := make(chan error, 2)
	for i := range 2 {
		go func() { done <- turn(table, watch, cpu, times, pipes[i][0], pipes[1-i][1]) }()
	}
	unix.Write(pipes[0][1], []byte{0})
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

var watching = make(chan struct{}, 1) // Watch is not safe for concurrent use

func turn(table *Table, watch bool, cpu, times, from, to int) error {
	pin(cpu)
	if watch {
		watching <- struct{}{}
		p, ok := table.Watch(unix.Gettid())
		<-watching
		if !ok {
			return fmt.Errorf("there is no room")
		}
		defer func() {
			watching <- struct{}{}
			table.Forget(p)
			<-watching
		}()
	}
	var b [1]byte
	for range times {
		if _, err := unix.Read(from, b[:]); err != nil {
			return err
		}
		if _, err := unix.Write(to, b[:]); err != nil {
			return err
		}
	}
	return nil
}

// pin binds the caller to a processor, with a thread of its own that ends with it.
func pin(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// BenchmarkRead measures a read of one thread's state.
func BenchmarkRead(b *testing.B) {
	table := loaded(b)
	if table == nil {
		return
	}
	p, _ := table.Watch(os.Getpid())
	for b.Loop() {
		table.Read(p)
	}
}

func BenchmarkLoad(b *testing.B) {
	if ok, _ := allowed(); !ok {
		return
	}
	for b.Loop() {
		table, err := Load()
		if err != nil {
			b.Fatal(err)
		}
		table.Close()
	}
}
