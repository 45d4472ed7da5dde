package linux

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
	"pegasus/hypervisor/linux/switches"
	"pegasus/vcpu"
)

// kernel is a fake /proc and /sys/fs/cgroup.
type kernel struct {
	t   *testing.T
	dir string
}

func (k kernel) write(path, text string) {
	k.t.Helper()
	path = filepath.Join(k.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k kernel) cpus(n int) *CPUs {
	c := NewCPUs(discard, nil)
	c.proc, c.cgroups = filepath.Join(k.dir, "proc"), filepath.Join(k.dir, "cgroup")
	c.allowed = func(int) hypervisor.CPUSet { return hypervisor.FirstCPUs(n) }
	return c
}

func (k kernel) process(pid, nice int, cgroup string) {
	k.t.Helper()
	k.write(fmt.Sprintf("proc/%d/cgroup", pid), cgroup)
	k.write(fmt.Sprintf("proc/%d/stat", pid), statLine('S', nice, 0))
}

func (k kernel) thread(pid, tid int, state byte, cpu int, ran, waited time.Duration) {
	k.t.Helper()
	dir := fmt.Sprintf("proc/%d/task/%d/", pid, tid)
	k.write(dir+"schedstat", fmt.Sprintf("%d %d 7\n", ran, waited))
	k.write(dir+"stat", statLine(state, 0, cpu))
}

// statLine returns a line of stat, with a misleading name.
func statLine(state byte, nice, cpu int) string {
	fields := strings.Fields(strings.Repeat("0 ", 50))
	fields[statState], fields[statNice], fields[statCPU] = string(state), fmt.Sprint(nice), fmt.Sprint(cpu)
	return "1 (a) R (b) " + strings.Join(fields, " ") + "\n"
}

func guests(pids ...int) (all []hypervisor.Guests) {
	for _, pid := range pids {
		all = append(all, hypervisor.Guests{Domain: fmt.Sprint("d", pid), Processes: []int{pid}})
	}
	return all
}

func TestWeights(t *testing.T) {
	k := kernel{t, t.TempDir()}
	k.write("cgroup/gold/cpu.weight", "200\n")
	k.write("cgroup/gold/inner/cpu.weight", "400\n")
	k.write("cgroup/gold/cpu.max", "max 100000\n")
	k.write("cgroup/gold/inner/cpu.max", "150000 100000\n")
	k.write("cgroup/tiny/cpu.weight", "1\n")
	k.write("cgroup/lent/cpu.weight", "50\n")
	k.write("cgroup/lent/mine/cpu.weight", "10000\n")
	k.write("cgroup/lent/mine/deeper/cpu.weight", "10000\n")
	os.Chmod(filepath.Join(k.dir, "cgroup/lent/mine/cpu.weight"), 0o666)
	k.write("cgroup/cpu/old/cpu.shares", "2048\n")
	k.write("cgroup/cpu/old/cpu.cfs_quota_us", "20000\n")
	k.write("cgroup/cpu/old/cpu.cfs_period_us", "100000\n")
	k.process(1, 0, "0::/\n")
	k.process(2, 5, "0::/\n")
	k.process(3, -20, "0::/\n")
	k.process(4, 19, "0::/gold/inner\n") // the only domain there, so that niceness has no effect
	k.process(5, 0, "0::/tiny\n")
	k.process(6, 0, "0::/lent/mine/deeper\n") // below a group that the guest may write
	k.process(7, 0, "0::/elsewhere\n3:cpu,cpuacct:/old\n")
	k.process(8, 0, "0::/../../gold\n") // not the visible one
	want := []hypervisor.Weight{{Credits: 256}, {Credits: 84}, {Credits: 22190}, {Credits: 2048, Cap: 150}, {Credits: 3},
		{Credits: 128}, {Credits: 512, Cap: 20}, {Credits: 256}, {}}
	got := k.cpus(1).Weights(guests(1, 2, 3, 4, 5, 6, 7, 8, 99))
	for i, w := range want {
		if got[i] != w {
			t.Errorf("domain %d has %+v, want %+v", i+1, got[i], w)
		}
	}
	// Of a domain's processes the heaviest counts, and a cap only if all have one.
	for want, pids := range map[hypervisor.Weight][]int{{Credits: 2048}: {1, 4, 7}, {Credits: 2048, Cap: 150}: {4, 7}} {
		if got := k.cpus(1).Weights([]hypervisor.Guests{{Domain: "d", Processes: pids}})[0]; got != want {
			t.Errorf("of processes %v: %+v, want %+v", pids, got, want)
		}
	}
}

const ms = time.Millisecond

var discard = slog.New(slog.DiscardHandler)

// look calls Look after a period of 30 ms.
func look(c *CPUs, of []hypervisor.Guests) ([]vcpu.Schedule, vcpu.Quality) {
	return c.Look(c.looked.Add(30*ms), 30*ms, of)
}

// Two domains compete for a CPU, a third sleeps.
func TestSchedule(t *testing.T) {
	k := kernel{t, t.TempDir()}
	for pid := 1; pid <= 3; pid++ {
		k.process(pid, 0, "0::/\n")
	}
	k.thread(1, 11, 'R', 0, 5*ms, 0)
	k.thread(2, 21, 'R', 0, 5*ms, 0)
	k.thread(3, 31, 'S', 0, 5*ms, 0)
	c, of := k.cpus(1), guests(1, 2, 3)
	all, quality := look(c, of)
	if quality != vcpu.Shadow || all[0].Remaining != 0 || all[1].Remaining != 0 || all[0].VCPUs[0].Next != 500 || all[1].VCPUs[0].Next != 500 {
		t.Errorf("at the first look: %v, %+v", quality, all)
	}
	k.thread(1, 11, 'R', 0, 35*ms, 0)
	all, _ = look(c, of)
	want := []struct {
		remaining int64
		state     vcpu.VCPUState
		next      int
	}{{-150, vcpu.Runnable, 625}, {150, vcpu.Running, 375}, {0, vcpu.Blocked, 0}} // 500 was predicted for each, and one had all
	for i, w := range want {
		s := all[i]
		if s.Weight != 256 || s.Remaining != w.remaining || len(s.VCPUs) != 1 {
			t.Fatalf("domain %d: %+v", i+1, s)
		}
		if v := s.VCPUs[0]; v.ID != 10*(i+1)+1 || v.PCPU != 0 || v.State != w.state || v.Next != w.next {
			t.Errorf("domain %d: %+v, want %+v", i+1, v, w)
		}
	}
	// The third wakes, has a CPU of its own, and then ends.
	k.thread(3, 31, 'R', 1, 6*ms, 0)
	all, _ = look(c, of)
	if v := all[2].VCPUs[0]; v.State != vcpu.Running || v.Next != 1000 || v.PCPU != 1 {
		t.Errorf("awake: %+v", v)
	}
	k.write("proc/3/task/31/schedstat", "") // as a read of an ended thread
	all, _ = look(c, of)
	if len(all[2].VCPUs) != 0 || len(all[1].VCPUs) != 1 {
		t.Errorf("after one ended: %+v", all)
	}
	if all, _ = look(c, of[:1]); len(all) != 1 || c.threads != 1 {
		t.Errorf("%d threads are kept of %d domains", c.threads, len(all))
	}
	c.Close()
	if c.threads != 0 {
		t.Errorf("%d threads are kept after the end", c.threads)
	}
}

// More threads don't give a domain more credit.
func TestThreadsShareTheirDomainsWeight(t *testing.T) {
	k := kernel{t, t.TempDir()}
	k.process(1, 0, "0::/\n")
	k.process(2, 0, "0::/\n")
	run := func(ran time.Duration) {
		k.thread(1, 11, 'R', 0, 16*ran, 0)
		for i := range 16 {
			k.thread(2, 100+i, 'R', 1, ran, 0)
		}
	}
	c, of := k.cpus(2), guests(1, 2)
	run(ms)
	look(c, of)
	run(ms + 30*ms/16)
	all, _ := look(c, of)
	for i, s := range all {
		if s.Remaining < -1 || s.Remaining > 1 {
			t.Errorf("domain %d, which had half of the CPUs' time, has %d credits left", i+1, s.Remaining)
		}
	}
}

// A long pause is not accounted for.
func TestScheduleAfterAPause(t *testing.T) {
	k := kernel{t, t.TempDir()}
	k.process(1, 0, "0::/\n")
	k.thread(1, 11, 'R', 0, 0, 0)
	c, of := k.cpus(1), guests(1)
	look(c, of)
	k.thread(1, 11, 'R', 0, 10*time.Second, 0)
	all, _ := c.Look(c.looked.Add(20*time.Second), 30*ms, of)
	if s := all[0]; s.Remaining != 0 || s.VCPUs[0].State != vcpu.Running {
		t.Errorf("%+v", s)
	}
}

// The reads are bounded, whatever a guest does.
func TestManyThreads(t *testing.T) {
	k := kernel{t, t.TempDir()}
	k.process(1, 0, "0::/\n")
	for i := range 3 * maxThreads {
		k.thread(1, 1000+i, 'S', 0, 0, 0)
	}
	c := k.cpus(1)
	for range 2*listEvery + 1 {
		if all, _ := look(c, guests(1)); len(all[0].VCPUs) > maxThreads || c.threads > maxThreads {
			t.Fatalf("%d of %d threads", len(all[0].VCPUs), c.threads)
		}
	}
}

// This process on this host's kernel: by the table where it can be loaded, and by /proc where it can't be, or loading is
// switched off.
func TestThisHost(t *testing.T) {
	refused := func() (*switches.Table, error) { return nil, errors.New("not today") }
	for name, load := range map[string]func() (*switches.Table, error){"noted": switches.Load, "read": nil, "refused": refused} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			c := NewCPUs(slog.New(slog.NewTextHandler(&said, nil)), load)
			defer c.Close()
			seeThisHost(t, c)
			if why := map[string]string{"read": "switched off", "refused": "not today"}[name]; !strings.Contains(said.String(), why) {
				t.Errorf("it doesn't say why it reads /proc (%s): %s", why, said.String())
			}
			if strings.Count(said.String(), "\n") != 1 {
				t.Errorf("from where it reads is said in other than one line: %s", said.String())
			}
			table, err := switches.Load()
			if err == nil {
				table.Close()
			}
			if noted := name == "noted" && err == nil; noted != (c.table != nil) {
				t.Errorf("loading ends with %v, and the table is %v", err, c.table)
			}
			c.Close() // as when no policy uses it any more
			if c.table != nil || c.threads != 0 {
				t.Errorf("closed, it keeps %v and %d threads", c.table, c.threads)
			}
			seeThisHost(t, c)
		})
	}
}

// Where the kernel rejects our BPF programs, /proc is read.
func TestThisHostAsNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: this one becomes another user")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestThisHost$/^noted$", "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestThisHost/noted")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func seeThisHost(t *testing.T, c *CPUs) {
	t.Helper()
	of := guests(os.Getpid())
	if w := c.Weights(of); w[0].Credits == 0 {
		t.Error("no weight is known of this process")
	}
	var stop atomic.Bool
	var tid atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		tid.Store(int64(unix.Gettid()))
		for !stop.Load() {
		}
	}()
	defer func() {
		stop.Store(true)
		<-done
	}()
	start := time.Now()
	now := func() vcpu.Time { return vcpu.Time(time.Since(start)) + 1 }
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * ms) {
		all, quality := c.Look(now(), 30*ms, of)
		if quality == vcpu.Shadow && (&vcpu.Sample{Domains: all}).Scheduled(0) {
			for _, u := range c.processes[os.Getpid()].threads {
				if u.tid == int(tid.Load()) && u.exact == (c.table != nil) && u.done.ran > ms {
					return
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("a thread that computes was not seen to run: %v, %+v", quality, all)
		}
	}
}

// Of an emulator's threads those count that run the guest.
func TestVirtualMachine(t *testing.T) {
	k := kernel{t, t.TempDir()}
	k.process(1, 0, "0::/\n")
	for tid, name := range map[int]string{1: "qemu-system-x86", 5: "CPU 1/KVM", 6: "CPU 0/KVM", 7: "IO mon_iothread", 8: "worker",
		9: "CPU x/KVM", 10: "CPU 1", 11: "CPU 1/HVF", 12: "CPU -1/KVM", 13: "CPU 99999/KVM"} {
		k.thread(1, tid, 'S', 0, 0, 0)
		k.write(fmt.Sprintf("proc/1/task/%d/comm", tid), name+"\n")
	}
	for _, vcpuThreads := range [][]int{nil, {6, 5}} {
		all, _ := look(k.cpus(1), []hypervisor.Guests{{Domain: "d", Processes: []int{1}, VM: true, VCPUs: vcpuThreads}})
		if v := all[0].VCPUs; len(v) != 2 || v[0].ID != 1 || v[1].ID != 0 {
			t.Errorf("told %v: %+v", vcpuThreads, v)
		}
	}
	// The reported threads have precedence over the names.
	all, _ := look(k.cpus(1), []hypervisor.Guests{{Domain: "d", Processes: []int{1}, VM: true, VCPUs: []int{8}}})
	if v := all[0].VCPUs; len(v) != 1 || v[0].ID != 0 {
		t.Errorf("%+v", v)
	}
	if all, _ := look(k.cpus(1), guests(1)); len(all[0].VCPUs) != 10 {
		t.Errorf("of a process guest every thread counts, not %d", len(all[0].VCPUs))
	}
}

// A machine's weight and quota are those of its group, whichever thread's group its
// emulator is in.
func TestWeightsOfVirtualMachines(t *testing.T) {
	k := kernel{t, t.TempDir()}
	v1 := "cgroup/cpu/machine/qemu-1-a.libvirt-qemu/"
	k.write(v1+"cpu.shares", "3072\n")
	k.write(v1+"emulator/cpu.shares", "2\n")
	k.write(v1+"vcpu0/cpu.cfs_quota_us", "20000\n")
	k.write(v1+"vcpu0/cpu.cfs_period_us", "100000\n")
	k.process(1, 0, "3:cpu:/machine/qemu-1-a.libvirt-qemu/emulator\n")
	v2 := "cgroup/machine.slice/machine-qemu.scope/"
	k.write(v2+"cpu.weight", "300\n")
	k.write(v2+"cpu.max", "150000 100000\n")
	k.write(v2+"libvirt/emulator/cpu.weight", "1\n")
	k.write(v2+"libvirt/vcpu0/cpu.max", "100000 100000\n")
	k.write(v2+"libvirt/vcpu1/cpu.max", "100000 100000\n")
	k.process(2, 0, "0::/machine.slice/machine-qemu.scope/libvirt/emulator\n")
	k.process(3, 0, "0::/machine.slice/machine-qemu.scope/libvirt/emulator\n")
	k.write(v1+"vcpu1/cpu.cfs_quota_us", "10000\n")
	k.write(v1+"vcpu1/cpu.cfs_period_us", "100000\n")
	of := guests(1, 2, 3)
	of[0].VM, of[1].VM = true, true
	want := []hypervisor.Weight{{Credits: 768, Cap: 30}, {Credits: 768, Cap: 150}, {Credits: 8, Cap: 150}}
	for i, w := range k.cpus(2).Weights(of) {
		if w != want[i] {
			t.Errorf("machine %d has %+v, want %+v", i+1, w, want[i])
		}
	}
	k.write(v1+"vcpu1/cpu.cfs_quota_us", "-1\n") // one has no limit, so that the machine has none
	if w := k.cpus(2).Weights(of[:1])[0]; w.Cap != 0 {
		t.Errorf("%+v", w)
	}
}

// A thread recorded as sleeping, without a record of its end, is dropped.
func TestEndUnnoticed(t *testing.T) {
	k := kernel{t, t.TempDir()}
	k.process(1, 0, "0::/\n")
	k.thread(1, 11, 'S', 0, 0, 0)
	k.thread(1, 12, 'S', 0, 0, 0)
	c := k.cpus(1)
	look(c, guests(1))
	p := c.processes[1]
	for _, u := range p.threads {
		u.take(switches.Entry{State: switches.Blocked}, 0)
	}
	k.write("proc/1/task/11/schedstat", "") // as a read of an ended thread
	if err := os.Rename(filepath.Join(k.dir, "proc/1/task/11"), filepath.Join(k.dir, "ended")); err != nil {
		t.Fatal(err)
	}
	c.list(1, p, maxThreads, threads{})
	if len(p.threads) != 1 || p.threads[0].tid != 12 || c.threads != 1 {
		t.Errorf("%d threads are left of one", len(p.threads))
	}
}

// The kernel's records count up to the time of the look, and from the first one.
func TestNoted(t *testing.T) {
	u := &thread{}
	for i, c := range []struct {
		entry switches.Entry
		clock int64
		done  runTimes
		state vcpu.VCPUState
	}{
		{switches.Entry{State: switches.Running, CPU: 3, Since: 100, Ran: 50}, 120, runTimes{}, vcpu.Running},
		{switches.Entry{State: switches.Running, CPU: 3, Since: 100, Ran: 50}, 150, runTimes{30, 0}, vcpu.Running},
		{switches.Entry{State: switches.Runnable, CPU: 3, Since: 160, Ran: 110}, 200, runTimes{10, 40}, vcpu.Runnable},
		{switches.Entry{State: switches.Blocked, CPU: 2, Since: 210, Ran: 110, Waited: 50}, 300, runTimes{0, 10}, vcpu.Blocked},
		{switches.Entry{State: switches.Running, CPU: 2, Since: 310, Ran: 110, Waited: 50}, 305, runTimes{}, vcpu.Running},
	} {
		if !u.take(c.entry, c.clock) || u.done != c.done || u.vcpu.State != c.state || u.vcpu.PCPU != c.entry.CPU {
			t.Errorf("entry %d: %+v, %+v", i, u.done, u.vcpu)
		}
	}
	if u.take(switches.Entry{State: switches.Ended}, 400) {
		t.Error("it has ended and is still there")
	}
}

// A thread's affinity comes from the kernel.
func TestAllowedCPUs(t *testing.T) {
	done := make(chan hypervisor.CPUSet)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		unix.SchedGetaffinity(0, &set)
		all := set
		for cpu := range hypervisor.MaxCPUs {
			if set.IsSet(cpu) && set.Count() > 1 {
				set.Clear(cpu)
			}
		}
		unix.SchedSetaffinity(0, &set)
		got := allowedCPUs(unix.Gettid())
		for cpu := range hypervisor.MaxCPUs {
			if one := hypervisor.FirstCPUs(0); set.IsSet(cpu) {
				one.Add(cpu)
				if one != got {
					t.Errorf("of %v a thread may run on %d only, and %x is said", all, cpu, got)
				}
			}
		}
		done <- got
	}()
	if s := <-done; s.Len() != 1 {
		t.Errorf("a thread may run on one CPU only, and %d are said", s.Len())
	}
	if s := allowedCPUs(1 << 30); s != everywhere {
		t.Errorf("a thread that is not there may run on %x", s)
	}
}

func BenchmarkLook(b *testing.B) {
	for name, load := range map[string]func() (*switches.Table, error){"noted": switches.Load, "read": nil} {
		b.Run(name, func(b *testing.B) { benchmarkLook(b, load) })
	}
}

func benchmarkLook(b *testing.B, load func() (*switches.Table, error)) {
	c, of := NewCPUs(discard, load), guests(os.Getpid())
	defer c.Close()
	stop := make(chan struct{})
	defer close(stop)
	for range 64 {
		go func() {
			runtime.LockOSThread()
			<-stop
		}()
	}
	time.Sleep(10 * ms)
	for i := range b.N {
		c.Look(vcpu.Time(i)*vcpu.Time(30*ms), 30*ms, of)
	}
	b.ReportMetric(float64(c.threads), "threads")
}

// The totals of vCPUs are those of the threads that the emulator reported, or of those named as vCPUs, and of no
// others.
func TestSpent(t *testing.T) {
	k := kernel{t, t.TempDir()}
	for tid, name := range map[int]string{10: "qemu-system-x86", 11: "CPU 0/KVM", 12: "CPU 1/KVM", 13: "vhost"} {
		k.thread(10, tid, 'S', 0, time.Duration(tid)*ms, 2*time.Duration(tid)*ms)
		k.write(fmt.Sprintf("proc/10/task/%d/comm", tid), name+"\n")
	}
	c := k.cpus(1)
	for want, g := range map[hypervisor.Spent]hypervisor.Guests{
		{VCPUs: 2, Ran: 23 * ms, Waited: 46 * ms}: {Processes: []int{10}, VM: true},
		{VCPUs: 1, Ran: 12 * ms, Waited: 24 * ms}: {Processes: []int{10}, VM: true, VCPUs: []int{12, 99}},
		{}: {Processes: []int{11}, VM: true},
	} {
		if got := c.Spent([]hypervisor.Guests{g})[0]; got != want {
			t.Errorf("%+v spent %+v, not %+v", g, got, want)
		}
	}
}
