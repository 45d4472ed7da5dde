package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/policies"
	"pegasus/sim/perfetto"
	"pegasus/vcpu"
)

const small = `
id = "small"
time = "3s"
cpus = 2
accelerator = [{name = "gpu", count = 2}]
domain = [
  {name = "a", accelerator = "gpu0", cpus = [0], workload = "FWT", credits = 512, cpu_credits = 512},
  {name = "b", accelerator = "gpu0", cpus = [0], workload = "MC"},
  {name = "c", accelerator = "gpu0", cpus = [1], workload = "LUD", depth = 2, from = "500ms", to = "2500ms"},
  {name = "d", accelerator = "gpu1", cpus = [1], workload = "PicSer", threads = 2},
]
plan = [
  {name = "none", policy = "none"},
  {name = "rr", policy = "rr", mode = "paper", handover = "1500us"},
  {name = "accc", policy = "accc"},
  {name = "fifo", policy = "fifo", cost = "10us"},
]
`

func scenario(tb testing.TB, text string) *Scenario {
	tb.Helper()
	sc, err := Parse("test.toml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return sc
}

func simulate(tb testing.TB, sc *Scenario, plan int, seed uint64) *Sim {
	tb.Helper()
	s, err := New(sc, &sc.Plans[plan], seed)
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.Run(); err != nil {
		tb.Fatal(err)
	}
	return s
}

// golden are the hashes of the first two plans of small: they depend neither on the machine nor on the
// process. They change with the model, and only with it.
var golden = []string{"30f1225d8b58800f", "75ddc5cad4112a3b"}

func TestSameSeedSameRun(t *testing.T) {
	sc := scenario(t, small)
	for i := range sc.Plans {
		first, again, other := simulate(t, sc, i, 7), simulate(t, sc, i, 7), simulate(t, sc, i, 8)
		if first.Hash() != again.Hash() || first.Events() != again.Events() {
			t.Errorf("%s: the same seed gave %016x and %016x", sc.Plans[i].Name, first.Hash(), again.Hash())
		}
		if first.Hash() == other.Hash() {
			t.Errorf("%s: another seed gave the same run", sc.Plans[i].Name)
		}
		if got := fmt.Sprintf("%016x", first.Hash()); i < len(golden) && got != golden[i] {
			t.Errorf("%s: hash %s, not %s", sc.Plans[i].Name, got, golden[i])
		}
	}
}

// A scheduler with the same inputs makes the same decisions, also after a round trip through a file.
func TestReplayDecidesTheSame(t *testing.T) {
	sc := scenario(t, small)
	for _, name := range policies.Names() {
		for _, mode := range []string{"paper", "production"} {
			plan := Plan{Name: name, Policy: name, Mode: mode}
			s, err := New(sc, &plan, 3)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := s.Record("gpu0")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(); err != nil {
				t.Fatal(err)
			}
			var file bytes.Buffer
			if err := rec.Write(&file); err != nil {
				t.Fatal(err)
			}
			read, err := ReadRecording(&file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read.Replay("")
			if err != nil {
				t.Fatal(err)
			}
			if got.Differ > 0 || got.Decisions == 0 || got.Turns < 100 {
				t.Errorf("%s, %s: %+v", name, mode, got)
			}
		}
	}
}

// The output of `pegasus trace` is replayed like a recording, through a change of the policy; another policy
// decides otherwise at the same events.
func TestReplayOfTrace(t *testing.T) {
	var file bytes.Buffer
	recordLine := func(r policies.Record) {
		if err := json.NewEncoder(&file).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	choices := []policies.Choice{
		{Policy: "accc", Options: policies.Defaults(policies.Production)},
		{Policy: "drr", Options: policies.Defaults(policies.Production)},
	}
	now := Time(time.Hour)
	var sched *policies.Scheduler
	for i, c := range choices {
		p, err := c.New()
		if err != nil {
			t.Fatal(err)
		}
		switch i {
		case 0:
			sched = policies.NewScheduler(p...)
			for id := range policies.ID(3) {
				sched.Step(now, &policies.Event{Domain: policies.Domain{ID: id}})
			}
			if err := sched.Record(now, c, recordLine); err != nil {
				t.Fatal(err)
			}
		default:
			recordLine(policies.Record{At: now, Choice: &c})
			sched.Use(now, p...)
		}
		for seq := range uint64(60) {
			of := policies.Domain{ID: policies.ID(seq*seq%7) % 3}
			used := policies.Usage{Compute: time.Duration(seq) * time.Millisecond, Requests: 1}
			sched.Step(now, &policies.Event{Kind: policies.Charge, Domain: of, Used: used})
			sched.Step(now, &policies.Event{Kind: policies.Wake, Domain: of, Signal: policies.Arrived})
			sched.Step(now, &policies.Event{Kind: policies.Head, Domain: of, Class: policies.Compute, Request: policies.Request{Seq: seq + 1}})
			sched.Ready(now)
			fmt.Fprintf(&file, "{\"at\":%d,\"run\":{\"domain\":\"one\",\"from\":1,\"to\":2}}\n", now) // of a vCPU, which changes nothing
			now = now.Add(7 * time.Millisecond)
		}
	}
	rec, err := ReadRecording(&file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rec.Replay(""); err != nil || got.Policy != "accc" || got.Differ > 0 || got.Decisions < 10 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := rec.Replay("lag"); err != nil || got.Policy != "lag" || got.Differ == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := rec.Replay("best"); err == nil {
		t.Error("a policy that there isn't")
	}
}

// The engines' busy time is charged to the domains, exactly once.
func TestChargesAddUp(t *testing.T) {
	sc := scenario(t, strings.Replace(small, `, to = "2500ms"`, "", 1))
	for i := range sc.Plans {
		s := simulate(t, sc, i, 5)
		for _, h := range s.loops.hosts {
			var busy, charged time.Duration
			for e := range h.gpu.engines {
				busy += h.gpu.engines[e].busy
			}
			for _, st := range h.sched.Stats(nil) {
				charged += st.Used.Busy()
			}
			for _, d := range h.all {
				for c := range d.reports.used {
					charged += d.reports.used[c].Used.Busy()
				}
			}
			if busy != charged+h.sched.Strays().Busy() {
				t.Errorf("%s, %s: busy for %v, charged %v", sc.Plans[i].Name, h.gpu.name, busy, charged)
			}
		}
	}
}

// A thread never has more CPU than there is, and a CPU never runs two.
func TestCPUs(t *testing.T) {
	sc := scenario(t, small)
	s := simulate(t, sc, 1, 1)
	var all time.Duration
	for _, d := range s.domains {
		all += d.cpu.used
	}
	var busy time.Duration
	for i := range s.cpus.all {
		busy += s.cpus.all[i].busy
		if s.cpus.all[i].busy > 3*time.Second {
			t.Errorf("CPU %d was busy for %v of 3 s", i, s.cpus.all[i].busy)
		}
	}
	if all != busy || busy == 0 {
		t.Errorf("domains had %v of CPUs that were busy for %v", all, busy)
	}
}

// A thread that computes on a shared CPU gets the part by its weight.
func TestCreditScheduler(t *testing.T) {
	sc := scenario(t, `
time = "20s"
cpus = 1
accelerator = [{name = "gpu"}]
domain = [
  {name = "heavy", cpus = [0], workload = "hog", cpu_credits = 768},
  {name = "light", cpus = [0], workload = "hog", cpu_credits = 256},
]
plan = [{policy = "none"}]
[workload.hog]
pre = "100ms"
`)
	m := simulate(t, sc, 0, 1).measure(sc)
	if h, l := m["heavy"]["cpu"], m["light"]["cpu"]; math.Abs(h-75) > 3 || math.Abs(l-25) > 3 {
		t.Errorf("CPU time is %.1f %% and %.1f %%, not 75 and 25", h, l)
	}
}

// Under EEVDF the shares are the same, and a waking thread waits for some slices, not for the end of
// another's burst.
func TestEEVDF(t *testing.T) {
	sc := scenario(t, `
time = "20s"
cpus = 1
cpu_scheduler = "eevdf"
accelerator = [{name = "gpu"}]
domain = [
  {name = "heavy", cpus = [0], workload = "hog", cpu_credits = 768},
  {name = "light", cpus = [0], workload = "hog", cpu_credits = 256},
  {name = "awake", cpus = [0], workload = "short", cpu_credits = 256},
]
plan = [{policy = "none"}]
[workload.hog]
pre = "100ms"
[workload.short]
pre = "100us"
think = "20ms"
`)
	m := simulate(t, sc, 0, 1).measure(sc)
	if h, l := m["heavy"]["cpu"], m["light"]["cpu"]; math.Abs(h/l-3) > 0.1 || h+l < 99 {
		t.Errorf("CPU time is %.1f %% and %.1f %%, not as 3 to 1", h, l)
	}
	if most := m["awake"]["run_max"]; most > 20+0.1+10 {
		t.Errorf("a program that sleeps for 20 ms and needs 0.1 took up to %v ms", most)
	}
}

// Virtual time stays near the average while threads come and go.
func TestEEVDFLag(t *testing.T) {
	sc := scenario(t, strings.Replace(small, "cpus = 2\n", "cpus = 2\ncpu_scheduler = \"eevdf\"\n", 1))
	s, err := New(sc, &sc.Plans[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	for at := Time(0); at < Time(3*time.Second); at = at.Add(7 * time.Millisecond) {
		for s.agenda.first().at <= at && s.next() {
		}
		for i := range s.cpus.all {
			p := &s.cpus.all[i]
			average := p.average()
			for _, th := range p.queue {
				if off := th.fair.ran - average; max(off, -off) > 4*th.virtual(eevdfSlice) {
					t.Fatalf("at %v a thread of %s is %d of its slices off the average", at, th.domain.name, off/th.virtual(eevdfSlice))
				}
			}
		}
	}
}

func TestSampleTellsWhoRuns(t *testing.T) {
	sc := scenario(t, small)
	s := simulate(t, sc, 0, 1)
	for _, h := range s.loops.hosts {
		sample := s.cpus.sample(h.members)
		for _, d := range sample.Domains {
			for _, v := range d.VCPUs {
				if running := s.cpus.all[v.PCPU].running; v.State == vcpu.Running && (running == nil || running.domain.id != d.ID) {
					t.Errorf("%s: domain %d is said to run on CPU %d", h.gpu.name, d.ID, v.PCPU)
				}
			}
			if d.Remaining > 300 || d.Remaining < -300 {
				t.Errorf("remaining credit %d", d.Remaining)
			}
		}
	}
}

func TestDistributions(t *testing.T) {
	q := normal()
	for _, c := range []struct {
		part, want float64
	}{{0.5, 0}, {0.8413, 1}, {0.9772, 2}, {0.0228, -2}, {0.025, -1.96}} {
		if got := float64(q[int(c.part*points)]) / (1 << one32); math.Abs(got-c.want) > 0.02 {
			t.Errorf("quantile %v is %v, not %v", c.part, got, c.want)
		}
	}
	for _, sigma := range []int{30, 250, 800, 1200} {
		p := logNormal(sigma)
		var sum, squares float64
		for _, f := range p {
			x := float64(f) / (1 << factorBits)
			sum += x / points
			squares += math.Log(x) * math.Log(x) / points
		}
		if mu := float64(sigma) * float64(sigma) / 2e6; math.Abs(sum-1) > 1e-3 || math.Abs(math.Sqrt(squares-mu*mu)*1000/float64(sigma)-1) > 0.02 {
			t.Errorf("σ %d: mean %v, root of squares %v", sigma, sum, math.Sqrt(squares))
		}
	}
}

func TestEventsAtOneInstant(t *testing.T) {
	var a agenda
	for i, k := range []kind{due, burst, completed, burst, accounting, replied, completed} {
		a.add(5, k, int32(i), 0)
	}
	a.add(4, due, 99, 0)
	var got []int32
	for a.len() > 0 {
		got = append(got, a.take().entity)
	}
	if want := []int32{99, 2, 6, 4, 1, 3, 5, 0}; !slices.Equal(got, want) {
		t.Errorf("order %v, not %v", got, want)
	}
}

func TestAgenda(t *testing.T) {
	chance := newStream(1, "agenda")
	var a agenda
	var want []event // in order of their numbers
	now := Time(0)
	for range 5000 {
		if a.len() != len(want) {
			t.Fatalf("%d events to come, not %d", a.len(), len(want))
		}
		if len(want) == 0 || chance.one(550) {
			k := kind(chance.below(time.Duration(numKinds)))
			a.add(now.Add(chance.below(20)), k, int32(a.count), 0)
			want = append(want, event{})
			want[len(want)-1] = a.latest()
			continue
		}
		next := slices.MinFunc(want, func(x, y event) int {
			if x.before(&y) {
				return -1
			}
			return 1
		})
		if got := *a.take(); got != next {
			t.Fatalf("took %v of kind %d, not %v of kind %d", got, got.kind(), next, next.kind())
		}
		want = slices.DeleteFunc(want, func(e event) bool { return e.key == next.key })
		now = next.at
	}
}

// latest returns the event that was added last.
func (a *agenda) latest() event {
	return slices.MaxFunc(a.events, func(x, y event) int { return int(x.entity - y.entity) })
}

// Accelerators that share nothing are simulated one after the other: that is only faster.
func TestParts(t *testing.T) {
	sc := scenario(t, `
profile = "modern"
time = "1s"
accelerator = [{name = "gpu", count = 3}]
domain = [
  {name = "a", count = 5, workload = "FWT"},
  {name = "b", workload = "MC", credits = 512, from = "100ms", to = "600ms"},
  {name = "c", count = 3, workload = "LUD", from_to = "300ms"},
]
plan = [{name = "accc", policy = "accc"}, {name = "lag", policy = "lag"}]
`)
	for i := range sc.Plans {
		apart := simulate(t, sc, i, 3)
		together, err := New(sc, &sc.Plans[i], 3)
		if err != nil {
			t.Fatal(err)
		}
		for together.next() {
		}
		if apart.Events() != together.Events() || apart.Now() != together.Now() {
			t.Errorf("%s: %d events in %v, together %d in %v", sc.Plans[i].Name, apart.Events(), apart.Now(), together.Events(), together.Now())
		}
		if a, b := apart.measure(sc), together.measure(sc); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: apart %v, together %v", sc.Plans[i].Name, a, b)
		}
	}
}

func TestRows(t *testing.T) {
	sc := Scenario{Window: time.Second}
	plans := map[string]Metrics{"A": {"": {"work": 3}, "d": {"work": 2}}}
	s := scope{let: map[string]float64{"k": 4}, metricOf: func(plan, domain, metric string) (float64, error) { return sc.measured(plans, plan, domain, metric) }}
	for text, want := range map[string]string{
		"A.work / A.d.work":         "1.5",
		"max(1, k, -2) * (1 + 2)":   "12",
		"below(1, 2) + below(2, 1)": "1",
		"abs(-k) - floor(1.5)":      "3",
		"A.d.run":                   "plan A: run of d wasn't measured: no run or call ended in the time that is measured",
		"A.share":                   "plan A: share wasn't measured: no window of 1s ended within the run; give a longer time, more runs, or a shorter window",
		"j":                         `"j" isn't a number that the scenario lets; did you mean k?`,
		"below(1)":                  "below has 2 arguments, not 1",
		"A.work == 3":               "unknown operator ==; there are +, -, *, /",
	} {
		one := 1.0
		r := Row{Value: text, Min: &one}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		v, err := s.value(r.tree)
		got := fmt.Sprint(v)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s = %s, not %s", text, got, want)
		}
	}
}

// A row holds if it does for the mean and for 95 % of the seeds.
func TestVerdict(t *testing.T) {
	sc := scenario(t, small+"\n[[row]]\nvalue = \"rr.work\"\nmin = 1.0\n")
	judge := func(low int, v float64) string {
		var all []map[string]Metrics
		for i := range 20 {
			x := 2.0
			if i < low {
				x = v
			}
			all = append(all, map[string]Metrics{"rr": {"": {"work": x}}})
		}
		return sc.Rows[0].judge(sc, all).Verdict
	}
	for _, c := range []struct {
		low  int
		v    float64
		want string
	}{{0, 0, Holds}, {1, 0.9, Holds}, {2, 0.9, Fails}, {1, -100, Fails}} {
		if got := judge(c.low, c.v); got != c.want {
			t.Errorf("%d of 20 seeds at %v: %s", c.low, c.v, got)
		}
	}
}

// row returns small with a row about a value.
func row(value string) string {
	return small + fmt.Sprintf("\n[[row]]\ntext = \"r\"\nvalue = %q\nmin = 1.0\n", value)
}

// Rows and bars name every plan and domain, whatever characters are in its name.
func TestNamesInRows(t *testing.T) {
	text := strings.NewReplacer(`name = "a"`, `name = "web-1"`, `name = "b"`, `name = "2nd b.x"`, `name = "rr"`, `name = "rr (all)"`).Replace(small)
	for value, want := range map[string]string{
		"rr__all_.web_1.part":                    "",
		"rr__all_._2nd_b_x.part + rr__all_.busy": "",
		"rr__all_.web_2.part":                    `no domain or group "web_2"`,
		"rr (all).web_1.part":                    "write 2nd b.x as _2nd_b_x, rr (all) as rr__all_, web-1 as web_1",
	} {
		for _, place := range []string{"[[row]]\ntext = \"r\"\nmin = 1.0\n", "[[chart]]\nkind = \"beside\"\n[[chart.bar]]\nname = \"x\"\n"} {
			sc, err := Parse("x.toml", []byte(text+place+fmt.Sprintf("value = %q\n", value)))
			if err == nil && want == "" {
				_, err = Judge(sc, 1, 1, nil)
			}
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: got error %v, want %q", value, err, want)
			}
		}
	}
	text = strings.NewReplacer(`name = "a"`, `name = "go"`, `name = "rr"`, `name = "default"`).Replace(small + "[let]\ntwo-thirds = 0.67\n")
	for value, want := range map[string]string{
		"_default._go.part * two_thirds": "",
		"default.b.part":                 "write default as _default, go as _go, two-thirds as two_thirds",
		"_default.go.part":               "write default as _default, go as _go",
		"_default.b.part * two-thirds":   "two-thirds as two_thirds",
	} {
		sc, err := Parse("x.toml", []byte(text+fmt.Sprintf("[[row]]\ntext = \"r\"\nmin = 1.0\nvalue = %q\n", value)))
		if err == nil && want == "" {
			_, err = Judge(sc, 1, 1, nil)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got error %v, want %q", value, err, want)
		}
	}
	both := strings.NewReplacer(`name = "a"`, `name = "web-1"`, `name = "b"`, `name = "web.1"`).Replace(small) + "[[row]]\nmin = 1.0\n"
	if _, err := Parse("x.toml", []byte(both+`value = "rr.web_1.part"`)); err == nil || !strings.Contains(err.Error(), `no domain or group "web_1"`) {
		t.Errorf("two domains with one spelling: got error %v, want none of them", err)
	}
}

// A result in JSON has an array of rows, and each row an array of values, whatever was measured.
func TestResultArrays(t *testing.T) {
	for text, want := range map[string]string{
		small:            `"rows":[]`,
		row("rr.a.part"): `"values":[`,
		strings.Replace(row("rr.a.part"), "time =", "window = \"1h\"\ntime =", 1): `"values":[]`,
	} {
		r, err := Judge(scenario(t, text), 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(r)
		if err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "null") {
			t.Errorf("got %s, %v, want %s and no null", out, err, want)
		}
	}
}

// measure returns exactly the metrics that rows may name; a metric without a window to be measured in is left
// out.
func TestMetricNames(t *testing.T) {
	sc := scenario(t, strings.Replace(small, `name = "d"`, `name = "d", group = "vm"`, 1))
	v, err := sc.vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	plan := &sc.Plans[1]
	m := simulate(t, sc, 1, 1).measure(sc)
	if got, want := slices.Sorted(maps.Keys(m)), slices.Sorted(maps.Keys(v[plan.Name])); !slices.Equal(got, want) {
		t.Errorf("metrics of %q, not of %q", got, want)
	}
	for of, names := range v[plan.Name] {
		want := slices.Compact(slices.Sorted(slices.Values(names)))
		if got := slices.Sorted(maps.Keys(m[of])); !slices.Equal(got, want) {
			t.Errorf("metrics of %q: %q, not %q", of, got, want)
		}
	}
	sc.Window = time.Hour
	m = simulate(t, sc, 1, 1).measure(sc)
	for of := range m {
		for _, name := range windowed {
			if x, ok := m[of][name]; ok {
				t.Errorf("no window ended, and %s of %q is %v", name, of, x)
			}
		}
	}
}

func TestBadScenarios(t *testing.T) {
	for text, want := range map[string]string{
		"tiem = \"5s\"":                  `line 1: unknown key "tiem"; did you mean time?`,
		"seeds = 1000001":                `line 1: scenario: seeds = 1000001: 0 to 1000000 is allowed`,
		small + "[[plann]]":              `unknown key "plann"; did you mean plan?`,
		small + "[[paln]]":               `unknown key "paln"; did you mean plan?`,
		"\n\nprofile = \"1999\"":         `line 3: profile = "1999": there are 2011, even, modern`,
		"time = \"5s\"\nwindow = \"5x\"": "line 2: ",
		small + "\nmemory = 5":           "unknown key",
		strings.Replace(small, `name = "gpu", count = 2`, `name = "gpu", count = 2, memory = "1 XB"`, 1):                       "isn't a size",
		strings.Replace(small, `policy = "accc"`, `policy = "accc", swap = "disk"`, 1):                                         `swap = "disk"; there are host, area`,
		strings.Replace(small, "cpus = 2\n", "cpus = 2\ncpu_scheduler = \"cfs\"\n", 1):                                         `line 5: cpu_scheduler = "cfs"; there are credit, eevdf`,
		small + "[[row]]\nvalue = \"a +\"\nmin = 1.0":                                                                          "a +",
		small + "[[row]]\nvalue = \"a\"":                                                                                       "give min, max or both",
		strings.Replace(small, "\"MC\"", "\"FPT\"", 1):                                                                         `line 8: plan "none": domain "b": there is no [workload.NAME] of the name "FPT", nor one that comes along; did you mean FWT?`,
		strings.Replace(small, "\"rr\"", "\"rx\"", 2):                                                                          "unknown policy",
		strings.Replace(small, "cpus = [1]", "cpus = [9]", 1):                                                                  "there is no CPU 9",
		strings.Replace(small, "\"gpu1\"", "\"gpu7\"", 1):                                                                      `there is no accelerator "gpu7"`,
		strings.Replace(small, "time = \"3s\"", "", 1):                                                                         "no end of the run",
		strings.Replace(small, `policy = "accc"`, `policy = "accc", options = {ticks = "3ms"}`, 1):                             `unknown parameter "ticks"`,
		strings.Replace(small, `policy = "accc"`, `policy = "accc", options = {tick = 3}`, 1):                                  `3 isn't a duration such as "1.5ms"`,
		strings.Replace(small, `"3s"`, "3", 1):                                                                                 `time = "3ns": at least 100ns, or none; durations are written "1.5ms"`,
		strings.Replace(small, `credits = 512`, `credits = 70000`, 1):                                                          `domain "a": credits = 70000: 0 to 65535 is allowed`,
		strings.Replace(small, `name = "b"`, `name = "b", slo = 1001`, 1):                                                      `slo = 1001: 0 to 1000 is allowed`,
		strings.Replace(small, `name = "b"`, `name = "a"`, 1):                                                                  `two are called domain "a"`,
		strings.Replace(small, `name = "d", accelerator = "gpu1"`, `name = "d2", workload = "MC"}, {name = "d", count = 2`, 1): `two are called domain "d2"`,
		strings.Replace(small, `name = "b", `, "", 1):                                                                          "domain has no name",
		strings.Replace(small, `count = 2}]`, `count = 2}, {name = "gpu0"}]`, 1):                                               `two are called accelerator "gpu0"`,
		strings.Replace(small, `name = "rr"`, `name = "none"`, 1):                                                              `two are called plan "none"`,
		strings.Replace(small, `policy = "accc"`, `policy = "accc", set = {e = {depth = 2}}`, 1):                               `plan "accc": set: there is no domain "e"`,
		strings.Replace(small, `policy = "accc"`, `policy = "accc", set = {b = {attributes = {credits = 3}}}`, 1):              `unknown parameter "attributes"`,
		strings.Replace(small, `policy = "accc"`, `policy = "accc", set = {b = {reserve = {kind = "XE"}}}`, 1):                 `plan "accc": domain "b": reserve kind "XE"; there are PE, AE, background`,
		strings.Replace(small, `name = "b"`, `name = "b", reserve = {cost = "2ms", period = "10ms"}`, 1):                       "reserve has no kind",
		strings.Replace(small, `name = "b"`, `name = "b", reserve = {kind = "PE", cost = "2ms"}`, 1):                           "reserve of cost 2ms in period 0s",
		strings.Replace(small, `name = "b"`, `name = "b", from = "4s"`, 1):                                                     `domain "b": begins at 4s, when all is over`,
		strings.Replace(small, `to = "2500ms"`, `to = "400ms"`, 1):                                                             `domain "c": to = "400ms": it begins at 500ms`,
		strings.Replace(small, `"MC"`, `"empty"`, 1) + "[workload.empty]\nkernel = \"0s\"":                                     `workload "empty" takes no time`,
		"time = \"1s\"\n[[plan]]\nname = \"p\"\npolicy = \"rr\"":                                                               "no workload to simulate; give [[domain]]",
		small + "[workload.huge]\ncalls = 9223372036854775807":                                                                 `calls = 9223372036854775807: 0 to 1000000000`,
		"[workload.w]\n\ncalls = 9223372036854775807\n[[domain]]\nworkload = \"w\"":                                            `line 3: workload "w": calls = 9223372036854775807: 0 to 1000000000`,
		"[workload.w]\nkernel = \"2000000h\"\n[[domain]]\nworkload = \"w\"":                                                    `line 2: workload "w": kernel = "2000000h0m0s"`,
		"[workload.w]\nahead = 1000000\n[[domain]]\nworkload = \"w\"":                                                          `line 2: workload "w": ahead = 1000000: 0 to 100000`,
		"time = 1.5":                      `durations are written "1.5ms"`,
		"[workload.w]\nin = \"NaN MB\"":   `"NaN MB" isn't a size`,
		"[workload.w]\nin = \"Inf\"":      `"Inf" isn't a size`,
		"[workload.w]\nin = \"1e300 TB\"": `"1e300 TB" isn't a size`,
		"":                                "nothing to simulate",

		"seeds = 0":               "line 1: seeds = 0: must be more than 0",
		"window = \"0s\"":         "line 1: window = 0s: must be more than 0",
		"[workload.w]\ncalls = 0": "line 2: workload w calls = 0: must be more than 0",
		strings.Replace(small, `credits = 512,`, `credits = 0,`, 1):                                    "domain a credits = 0: must be more than 0; leave it out for the default",
		strings.Replace(small, `policy = "accc"`, `policy = "accc", set = {b = {cpu_credits = 0}}`, 1): "plan accc set b cpu_credits = 0: must be more than 0",
		row("rr.busy") + "max = inf":                                                                                "row max = +Inf: must be a finite number",
		small + "[let]\nk = nan":                                                                                    "let k = NaN: must be a finite number",
		strings.Replace(small, `credits = 512,`, `Credits = 0,`, 1):                                                 "domain a Credits = 0: must be more than 0",
		strings.Replace(small, `credits = 512,`, `credits = 512, credits_to = 100,`, 1):                             `domain "a": credits_to = 100: at least credits, 512`,
		strings.Replace(small, `from = "500ms"`, `from = "500ms", from_to = "1ms"`, 1):                              `domain "c": from_to = "1ms": at least from, 500ms`,
		"[workload.w]\nkernel = \"2ms\"\nkernel_to = \"1ms\"":                                                       `workload "w": kernel_to = "1ms": at least kernel, 2ms`,
		"from = \"4s\"\n" + small:                                                                                   `from = "4s", to = "0s", time = "3s": nothing is measured`,
		"[workload.w]\nwork = -1":                                                                                   `workload "w": work = -1: must be more than 0`,
		strings.Replace(small, `policy = "accc"`, `policy = "accc", domains = ["aa"]`, 1):                           `plan "accc": there is no domain "aa"; did you mean a?`,
		strings.Replace(small, `name = "b", `, `name = "b-1", `, 1) + "[[row]]\nvalue = \"rr.b-1.part\"\nmin = 1.0": "write b-1 as b_1",
		row("rr.a.lattency"):                                                                                        `plan rr has no metric "lattency" of a; did you mean latency?`,
		row("rr.zulu.part"):                                                                                         `line 21: row r: plan rr has no domain or group "zulu"; there are a, b, c, d`,
		row("acc.a.part"):                                                                                           `row r: there is no plan "acc"; did you mean accc?`,
		row("rr.part"):                                                                                              `row r: plan rr has no metric "part"; did you mean `,
		row("rr.a"):                                                                                                 `plan rr has no metric "a": it is a domain or group; write rr.a.METRIC`,
		row("rr.busy + fac"):                                                                                        `"fac" isn't a number that the scenario lets`,
		row("abs(rr.busy, 1)"):                                                                                      "abs has 1 arguments, not 2",
		row("rr.busy") + "max = 0.5":                                                                                "min = 1, max = 0.5: no value is within them",
		row("rr.b.part") + "[[chart]]\nkind = \"bar\"\nmetric = \"wiat\"":                                           `there is no metric "wiat"; did you mean wait?`,
		small + "[[chart]]\nkind = \"time\"\nplans = [\"lag\"]":                                                     `there is no plan "lag"`,
		small + "[[chart]]\nkind = \"time\"\ndomains = [\"aa\"]":                                                    `there is no domain or group "aa"; did you mean a?`,
		small + "[[chart]]\nkind = \"beside\"\n[[chart.bar]]\nname = \"x\"\nvalue = \"rr.aa.part\"":                           `bar x: plan rr has no domain or group "aa"`,
		strings.Replace(small, `name = "b", `, `name = "b", group = "vm", `, 1) + "[[row]]\nvalue = \"rr.b.part\"\nmin = 1.0": `has no metric "part" of b`,
	} {
		_, err := Parse("x.toml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "x.toml: ") {
			t.Errorf("%.60q…: %v, not %s", text, err, want)
		}
	}
}

// The options of a plan have the meaning of the keys in the configuration: 0 is 0, not the default.
func TestZeroOptions(t *testing.T) {
	for _, c := range []struct {
		key  string
		give any // nil: the key is left out
		want int64
		fail string
	}{
		{"boost", nil, 4, ""},
		{"boost", int64(0), 0, ""},
		{"boost", int64(3), 3, ""},
		{"ahead", "0s", 0, ""},
		{"debt_af", int64(0), 0, ""},
		{"history", int64(0), 0, ""},
		{"mean", "0s", 0, ""},
		{"by_credits", false, 0, ""},
		{"order", "policy", 0, ""},
		{"max_skip", int64(0), 0, "options: max_skip: 0: 1 to 64 is allowed; leave it out for the default"},
		{"quantum", "0s", 0, "options: quantum: 0s: 50µs to 30ms is allowed; leave it out for the default"},
	} {
		o, values := policies.Defaults(policies.Production), map[string]any{}
		if c.give != nil {
			values[c.key] = c.give
		}
		if err := setOptions(&o, values); c.fail != "" {
			if got := fmt.Sprintf("options: %v", err); got != c.fail {
				t.Errorf("%s = %v: got error %q, want %q", c.key, c.give, got, c.fail)
			}
		} else if got := o.Get(policies.Parameter(c.key)); err != nil || got != c.want {
			t.Errorf("%s = %v: got %d (%v), want %d", c.key, c.give, got, err, c.want)
		}
	}
}

// Any file is refused or can run.
func FuzzScenario(f *testing.F) {
	f.Add([]byte(small))
	all, err := files.ReadDir("scenarios")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range all {
		text, err := files.ReadFile("scenarios/" + e.Name())
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 3000 && e.Name() != "S1.toml" {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		sc, err := Parse("x.toml", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.toml: ") {
				t.Fatalf("%v doesn't name the file", err)
			}
			return
		}
		for i := range sc.Plans {
			if sc.Plans[i].Study != "" || sc.Bench != "" || len(sc.Domains) == 0 {
				continue
			}
			s, err := New(sc, &sc.Plans[i], 1)
			if err != nil {
				t.Fatalf("what was accepted doesn't run: %v", err)
			}
			for n := 0; n < 5000 && s.next(); n++ { // a while is enough
			}
		}
	})
}

// Every built-in scenario can be read; formulas hold.
func TestScenarios(t *testing.T) {
	all, err := Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, sc := range all {
		if seen[sc.ID] || sc.Title == "" {
			t.Errorf("scenario %q: twice, or without a title", sc.ID)
		}
		seen[sc.ID] = true
		if own, err := Load(strings.ToLower(sc.ID)); err != nil || own.ID != sc.ID {
			t.Errorf("%s isn't found by its name: its file has another", sc.ID)
		}
		switch {
		case sc.Kind() == "bench":
			continue
		case len(sc.Rows) == 0:
			t.Errorf("%s expects nothing", sc.ID)
		case sc.Kind() == "simulated" && !slices.Contains([]string{"T16", "G7", "R10", "G12"}, sc.ID):
			continue
		}
		r, err := Judge(sc, 1, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Rows {
			if v.Verdict != Holds {
				t.Errorf("%s: %s: %v %s", sc.ID, v.Text, v.Mean, v.Why)
			}
		}
	}
}

// Under every policy domains make progress that keep requests queued at the gate and behind it, beside one
// that waits for each answer: the scheduler sees when its lease is used up, whatever was in flight before.
func TestEveryPolicyGoesOn(t *testing.T) {
	const text = `
id = "queues"
title = "Queues of unlike requests"
profile = "even"
time = "2s"
accelerator = [{name = "gpu"}]
domain = [
  {name = "short", workload = "short"},
  {name = "long", workload = "long", depth = 2},
  {name = "middle", workload = "middle", depth = 4},
]
plan = [{name = "it", policy = %q, mode = %q}]
[workload.short]
cpu = "300us"
kernel = "2ms"
[workload.long]
cpu = "200us"
kernel = "24ms"
ahead = 2
[workload.middle]
cpu = "100us"
kernel = "6ms"
ahead = 4
`
	for _, name := range policies.Names() {
		for _, mode := range []string{"production", "paper"} {
			sc, err := Parse("queues.toml", fmt.Appendf(nil, text, name, mode))
			if err != nil {
				t.Fatal(err)
			}
			r, err := Judge(sc, 1, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{"short", "long", "middle"} {
				if got := r.Metrics["it"][d]["compute"]; got < 0.2 { // 32 requests of 24 ms are a burst of credit, as published
					t.Errorf("%s, %s: %s had %.1f %% of the engine", name, mode, d, got)
				}
			}
			if busy := r.Metrics["it"][""]["busy"]; busy < 85 {
				t.Errorf("%s, %s: the engine was busy for %.1f %%", name, mode, busy)
			}
		}
	}
}

func TestTrace(t *testing.T) {
	sc := scenario(t, small)
	s, err := New(sc, &sc.Plans[1], 1)
	if err != nil {
		t.Fatal(err)
	}
	trace := s.Trace()
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := trace.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"gpu0"`, `"name":"CPU 1"`, `"name":"open","ph":"X"`, `"switch_ms"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in the trace", want)
		}
	}
	last := map[track]int64{}
	all := slices.Clone(trace.picture.Slices())
	slices.SortStableFunc(all, func(a, b perfetto.Slice) int { return int(a.From - b.From) })
	for _, sl := range all {
		line := track{sl.Group, sl.Line}
		if sl.From < last[line] {
			t.Fatalf("two things at once in %s: %v and before it until %v", sl.Line, sl, last[line])
		}
		last[line] = sl.To
	}
}

// BenchmarkEvents reports how many events a second are simulated.
func BenchmarkEvents(b *testing.B) {
	for _, id := range []string{"P4", "S1"} {
		sc, err := Load(id)
		if err != nil {
			b.Fatal(err)
		}
		for i := range sc.Plans {
			b.Run(id+"/"+sc.Plans[i].Name, func(b *testing.B) {
				var events uint64
				for b.Loop() {
					events += simulate(b, sc, i, 1).Events()
				}
				b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// Requests in flight when a domain leaves are charged to it, under every policy, also when it comes back. A
// missing charge is an error of the run.
func TestLeaversAreCharged(t *testing.T) {
	sc := scenario(t, `
id = "leavers"
time = "5s"
profile = "even"
accelerator = [{name = "gpu"}]
domain = [
  {name = "steady", workload = "short", depth = 4},
  {name = "quits", workload = "short", depth = 4, away = "3ms"},
  {name = "dies", workload = "long", depth = 2, to = "1s"},
]
plan = [{name = "p", policy = "rr"}]
[workload.short]
calls = 3
ahead = 8
kernel = "2ms"
[workload.long]
calls = 1
ahead = 2
kernel = "700ms"
`)
	for _, name := range policies.Names() {
		for _, mode := range []string{"paper", "production"} {
			plan := Plan{Name: name, Policy: name, Mode: mode}
			s, err := New(sc, &plan, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(); err != nil {
				t.Errorf("%s, %s: %v", name, mode, err)
			}
			if d := s.domains[1]; len(d.runs) < 5 {
				t.Errorf("%s, %s: the domain that comes back did %d runs", name, mode, len(d.runs))
			}
			s.loops.hosts[0].charged--
			if s.check() == nil {
				t.Errorf("%s, %s: a nanosecond that is missing isn't noticed", name, mode)
			}
		}
	}
}
