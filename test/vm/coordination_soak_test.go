//go:build soak

package vm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
	"pegasus/sim"
)

// Policies with two machines that have their vCPUs tied to one CPU, and guests that always have
// something to compute: the work done, beside the simulator's prediction for V1 with the times
// that launches take here. Each round has every plan once.
//
//	PEGASUS_ROUNDS=4 go test -tags soak -run TestSoakCoordination -count=1 -v ./test/vm
//
// Several such runs are put together, by a file that each adds its rounds to:
// build/coordination.jsonl, or PEGASUS_COORDINATION. With no rounds the test shows that file's rounds.
// A round counts if nothing else used the machines' CPU: they always demand all of it.
func TestSoakCoordination(t *testing.T) {
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("PEGASUS_ROUNDS"), "1"))
	if err != nil {
		t.Fatal(err)
	}
	sc, err := sim.Load("V1")
	if err != nil {
		t.Fatal(err)
	}
	if rounds > 0 {
		keep(t, measure(t, sc, rounds))
	}
	all := kept(t)
	undisturbed := slices.DeleteFunc(slices.Clone(all), func(r round) bool {
		return slices.Min(slices.Collect(maps.Values(r.Used))) < leastUsed
	})
	t.Logf("%d rounds, of which %d were disturbed", len(all), len(all)-len(undisturbed))
	for _, r := range undisturbed {
		for plan, part := range r.CPU {
			if math.Abs(part-50) > 5 {
				t.Errorf("under %s the first of two equal machines had %.1f %% of the CPU", plan, part)
			}
		}
	}
	if len(undisturbed) > 1 {
		summarise(t, sc, undisturbed)
	}
}

// leastUsed is the least part of the CPU, in %, that the machines use if they have the CPU to themselves.
const leastUsed = 95

// measure runs every plan so many times.
func measure(t *testing.T, sc *sim.Scenario, rounds int) (all []round) {
	t.Helper()
	stayOn(t, 0)
	h := startHost(t, "[[accelerator]]\nname = \"gpu\"\ntype = \"soft\"\nmemory = \"256MiB\"\ncores = 1\n[default_domain]\narena = \"16MiB\"\n"+
		"[[domain]]\nname = \"trial\"\n") // declared, so that it has its counts after its program has ended
	l := startLibvirtWith(h, `"cpu", "cpuacct", "cpuset"`)
	l.useInDaemon()
	l.edit = func(s string) string {
		return strings.Replace(s, "<os>", "<cputune><vcpupin vcpu='0' cpuset='1'/><emulatorpin cpuset='0'/></cputune>\n  <os>", 1)
	}
	b := &bench{h: h, sc: sc, base: h.config()}
	program := sc.Workloads["coupled"].Program
	line := "/bench/" + strings.Join(program, " ") + " --steps " + b.steps() + " --no-check --quiet --seconds 3600"
	calls := b.callsPerLaunch(program)
	job := fmt.Sprintf("while :; do :; done &\nrenice -n 19 -p $!\n%s\n", line)
	for _, name := range []string{"one", "two"} {
		l.machine(name, job)
		l.run("virsh", "start", name)
	}
	eventually(t, bootTime, "both compute", func() bool { return h.domain("one").GPU > 0 && h.domain("two").GPU > 0 })

	// How long a launch takes, by itself.
	l.run("virsh", "suspend", "two")
	b.use(&sim.Plan{Policy: "none"})
	alone := b.measure(2 * time.Second)
	l.run("virsh", "resume", "two")
	r := round{Kernel: alone.one.kernel(calls), Gap: alone.one.gap(calls)}
	t.Logf("alone: a launch computes for %v, and %v pass besides", r.Kernel, r.Gap)

	for range rounds {
		r.Rates, r.CPU, r.Used, r.Kernels = map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]time.Duration{}
		for i := range sc.Plans {
			p := &sc.Plans[i]
			b.use(p)
			m := b.measure(phase)
			r.Rates[p.Name] = (m.one.launches(calls) + m.two.launches(calls)) / m.took.Seconds()
			r.CPU[p.Name] = 100 * float64(m.one.ran) / float64(m.one.ran+m.two.ran)
			r.Used[p.Name] = 100 * float64(m.one.ran+m.two.ran) / float64(m.took)
			r.Kernels[p.Name] = (m.one.kernel(calls) + m.two.kernel(calls)) / 2
		}
		for _, p := range sc.Plans {
			t.Logf("%-8s %5.1f launches per second; the first machine had %4.1f %% of the CPU", p.Name, r.Rates[p.Name], r.CPU[p.Name])
		}
		all = append(all, r)
	}
	return all
}

// phase is the time for which each plan is measured.
const phase = 2400 * time.Millisecond

// round is the result of one measurement of every plan.
type round struct {
	Kernel, Gap time.Duration      // of a launch alone
	Rates       map[string]float64 // launches per second of both machines, by plan
	CPU         map[string]float64 // the first machine's part of the CPU time of both, in %
	Used        map[string]float64 // of the CPU, in %
	Kernels     map[string]time.Duration
}

// stayOn ties this process, and whatever it starts meanwhile, to a CPU.
func stayOn(t *testing.T, cpu int) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	one.Set(cpu)
	if err := tie(&one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tie(&all) })
}

// tie has all threads of this process run on some CPUs.
func tie(to *unix.CPUSet) error {
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if failed := unix.SchedSetaffinity(tid, to); failed != nil && failed != unix.ESRCH {
			err = failed
		}
	}
	return err
}

func (h *host) config() string {
	h.t.Helper()
	text, err := os.ReadFile(h.path("pegasus.toml"))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// bench measures plans, one after the other, while programs go on.
type bench struct {
	h    *host
	sc   *sim.Scenario
	base string // of the configuration
}

// use configures the daemon for a plan.
func (b *bench) use(p *sim.Plan) {
	b.h.t.Helper()
	keys := fmt.Sprintf("policy = %q\nmode = %q\ncpu_follows_gpu = %v\n", p.Policy, cmp.Or(p.Mode, "production"), p.CPUFollows)
	for key, value := range p.Options {
		keys += fmt.Sprintf("%s = %q\n", key, value)
	}
	text := strings.Replace(b.base, "type = \"soft\"\n", "type = \"soft\"\n"+keys, 1)
	if err := os.WriteFile(b.h.path("pegasus.toml"), []byte(text), 0o644); err != nil {
		b.h.t.Fatal(err)
	}
	b.pegasus("reload")
	time.Sleep(300 * time.Millisecond)
}

func (b *bench) pegasus(args ...string) {
	b.h.t.Helper()
	if out, err := exec.Command(built(b.h.t, "bin/pegasus"), append(args, "--runtime-dir", b.h.dir)...).CombinedOutput(); err != nil {
		b.h.t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// did is a machine's work in a time.
type did struct {
	calls uint64
	gpu   time.Duration
	ran   time.Duration // its vCPU
	took  time.Duration
}

func (d did) launches(calls float64) float64 { return float64(d.calls) / calls }

func (d did) kernel(calls float64) time.Duration {
	return time.Duration(float64(d.gpu) / d.launches(calls))
}

func (d did) gap(calls float64) time.Duration {
	return time.Duration(float64(d.took)/d.launches(calls)) - d.kernel(calls)
}

// measurement is the work of both machines.
type measurement struct {
	one, two did
	took     time.Duration
}

func (b *bench) measure(d time.Duration) measurement {
	b.h.t.Helper()
	before, began := b.both(), time.Now()
	time.Sleep(d)
	after, took := b.both(), time.Since(began)
	return measurement{since(before[0], after[0], took), since(before[1], after[1], took), took}
}

func since(a, b control.Domain, took time.Duration) did {
	return did{b.Calls - a.Calls, time.Duration(b.GPU - a.GPU), time.Duration(b.VCPURan - a.VCPURan), took}
}

// both returns the domains, with the running times of their vCPUs up to now.
func (b *bench) both() (all [2]control.Domain) {
	b.h.t.Helper()
	defer func() {
		for i := range all {
			all[i].VCPURan = b.ran(all[i].Machine)
		}
	}()
	out, err := exec.Command(built(b.h.t, "bin/pegasus"), "domains", "--runtime-dir", b.h.dir, "--json").Output()
	var list []control.Domain
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		b.h.t.Fatal(err)
	}
	for _, d := range list {
		switch d.Name {
		case "one":
			all[0] = d
		case "two":
			all[1] = d
		}
	}
	return all
}

// ran returns the time that a machine's only vCPU has run.
func (b *bench) ran(m *control.Machine) (ns int64) {
	b.h.t.Helper()
	if m == nil || len(m.VCPUs) != 1 {
		b.h.t.Fatalf("the machine is %+v", m)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", m.PID, m.VCPUs[0]))
	if err == nil {
		_, err = fmt.Sscan(string(text), &ns)
	}
	if err != nil {
		b.h.t.Fatal(err)
	}
	return ns
}

// trial runs a program on the host, with terse JSON output, and returns its domain and that output.
func (b *bench) trial(args ...string) (control.Domain, []byte) {
	b.h.t.Helper()
	run := append([]string{"run", "--runtime-dir", b.h.dir, "--domain", "trial", "--", built(b.h.t, "bench/"+args[0]), "--json", "--quiet", "--no-check"}, args[1:]...)
	out, err := exec.Command(built(b.h.t, "bin/pegasus"), run...).Output()
	if err != nil {
		b.h.t.Fatalf("%v: %v", run, err)
	}
	return b.h.domain("trial"), out
}

// steps returns the number of steps with which a kernel takes the scenario's time on this host.
func (b *bench) steps() string {
	b.h.t.Helper()
	_, out := b.trial("busy", "--iterations", "50", "--kernel-ms", fmt.Sprint(float64(b.sc.Workloads["coupled"].Kernel)/1e6))
	var r struct {
		Steps float64 `json:"steps"`
	}
	if err := json.Unmarshal(out, &r); err != nil || r.Steps == 0 {
		b.h.t.Fatalf("%v: %s", err, out)
	}
	return fmt.Sprintf("%.0f", r.Steps)
}

// callsPerLaunch returns the number of calls that a program makes for each launch.
func (b *bench) callsPerLaunch(program []string) float64 {
	b.h.t.Helper()
	count := func(n int) uint64 {
		before := b.h.domain("trial").Calls
		d, _ := b.trial(append(program[:len(program):len(program)], "--iterations", fmt.Sprint(n), "--steps", "1", "--cpu-steps", "1")...)
		return d.Calls - before
	}
	few, many := count(100), count(1100)
	return float64(many-few) / 1000
}

// file returns the path of the file with the rounds.
func file(t *testing.T) string {
	t.Helper()
	return cmp.Or(os.Getenv("PEGASUS_COORDINATION"), filepath.Join(filepath.Dir(filepath.Dir(built(t, "bin/pegasusd"))), "coordination.jsonl"))
}

// keep appends rounds to the file.
func keep(t *testing.T, all []round) {
	t.Helper()
	f, err := os.OpenFile(file(t), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, r := range all {
		if err := json.NewEncoder(f).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
}

// kept returns the rounds in the file.
func kept(t *testing.T) (all []round) {
	t.Helper()
	text, err := os.ReadFile(file(t))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r round
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// summarise prints ratios of work with their 95 % confidence intervals, beside the predicted ratios.
func summarise(t *testing.T, sc *sim.Scenario, all []round) {
	t.Helper()
	var kernel, gap time.Duration
	for _, r := range all {
		kernel, gap = kernel+r.Kernel/time.Duration(len(all)), gap+r.Gap/time.Duration(len(all))
	}
	w := sc.Workloads["coupled"]
	w.Kernel, w.CPU = kernel, gap
	sc.Workloads["coupled"] = w
	foretold, err := sim.Judge(sc, 1, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	rate := func(plan string) float64 {
		m := foretold.Metrics[plan]
		return m["one"]["rate"] + m["two"]["rate"]
	}
	t.Logf("%d rounds; a launch alone computes for %v, and %v pass besides", len(all), kernel, gap)
	for _, q := range [][2]string{{"AugC", "XC"}, {"CoSched", "XC"}, {"XC", "None"}, {"Follow", "XC"}, {"Follow", "None"}, {"Production", "None"}, {"Kept", "Production"}} {
		mean, half, n := interval(all, q)
		want := rate(q[0]) / rate(q[1])
		within := "within 10 % of it"
		if math.Abs(mean/want-1) > 0.1 {
			within = "not within 10 % of it"
			if mean-half < 1.1*want && mean+half > 0.9*want {
				within = "its interval meets 10 % of it"
			}
		}
		t.Logf("%-18s %.3f ± %.3f in %d rounds, foretold %.3f: %s", q[0]+" / "+q[1], mean, half, n, want, within)
	}
	for _, p := range sc.Plans {
		var rates, cpu, used, kernels []float64
		for _, r := range all {
			if r.Rates[p.Name] == 0 { // a round from before this plan existed
				continue
			}
			rates, cpu = append(rates, r.Rates[p.Name]), append(cpu, r.CPU[p.Name])
			used, kernels = append(used, r.Used[p.Name]), append(kernels, float64(r.Kernels[p.Name])/1e6)
		}
		if len(rates) == 0 {
			continue
		}
		done, give := spread(rates)
		first, take := spread(cpu)
		load, _ := spread(used)
		computes, _ := spread(kernels)
		t.Logf("%-8s %.1f ± %.1f launches per second, of %.2f ms, foretold %.1f; the first machine had %.1f ± %.1f %% of the CPU, which was busy for %.0f %%",
			p.Name, done, give, computes, rate(p.Name), first, take, load)
	}
}

// interval returns the mean of a ratio over the rounds, half of its 95 % confidence interval, and the number of rounds.
func interval(all []round, q [2]string) (mean, half float64, n int) {
	var ratios []float64
	for _, r := range all {
		if r.Rates[q[0]] > 0 && r.Rates[q[1]] > 0 {
			ratios = append(ratios, r.Rates[q[0]]/r.Rates[q[1]])
		}
	}
	mean, half = spread(ratios)
	return mean, half, len(ratios)
}

// spread returns the mean, and half of its 95 % confidence interval by Student's t.
func spread(all []float64) (mean, half float64) {
	n := float64(len(all))
	for _, v := range all {
		mean += v / n
	}
	if len(all) < 2 {
		return mean, math.Inf(1)
	}
	var sum float64
	for _, v := range all {
		sum += (v - mean) * (v - mean)
	}
	return mean, student(len(all)-1) * math.Sqrt(sum/(n-1)/n)
}

// student returns the 97.5 % quantile of Student's t, to a hundredth.
func student(freedom int) float64 {
	exact := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}
	if freedom <= len(exact) {
		return exact[freedom-1]
	}
	return 1.96 + 2.65/float64(freedom)
}
