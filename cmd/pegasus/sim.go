package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"pegasus/backend/control"
	"pegasus/configs"
	"pegasus/sim"
	"pegasus/sim/report"
)

// simFlags are the subcommand and the flags of `pegasus sim`.
type simFlags struct {
	list   bool
	replay string // file
	policy string // of replay
	cost   bool   // of replay
	judged string // file of coordination
	seed   uint64
	seeds  int
	plan   string // for --trace and --record
	trace  string // files
	record string
	report string // directory
}

// simOlderFlags are the flags by which earlier releases had the subcommands list, replay and coordination. Scripts
// may still use them.
var simOlderFlags = []string{"list", "replay", "coordination"}

func simulate(c *call) action {
	var f simFlags
	c.jsonFlag()
	c.flags.BoolVar(&f.list, "list", false, "the subcommand list")
	c.flags.StringVar(&f.replay, "replay", "", "the subcommand replay of `file`")
	c.flags.StringVar(&f.judged, "coordination", "", "the subcommand coordination of `file`")
	c.flags.Uint64Var(&f.seed, "seed", 1, "run: begin with the seed `n`")
	c.flags.IntVar(&f.seeds, "seeds", 0, "run: run `n` seeds instead of the scenario's 20")
	c.flags.StringVar(&f.trace, "trace", "", "run: write the events of one run to `file`, for Perfetto or chrome://tracing")
	c.flags.StringVar(&f.record, "record", "", "run: write the input of the first accelerator's scheduler in one run to `file`")
	c.flags.StringVar(&f.plan, "plan", "", "run, with --trace or --record: use the plan `name`, not the first")
	c.flags.StringVar(&f.policy, "policy", "", "replay: use the policy `name`, not the recorded one")
	c.flags.BoolVar(&f.cost, "cost", false, "replay: measure a turn of the scheduler on this machine")
	c.flags.StringVar(&f.report, "report", "", "run: write a page with figures, index.html, into `directory`")
	return c.takes(0, -1, func(operands []string) error {
		names, err := f.subcommand(operands)
		if err != nil {
			return err
		}
		if f.report != "" && len(names) == 0 {
			names = []string{"all"}
		}
		if c.given("seeds") && (f.seeds < 1 || f.seeds > sim.MostSeeds) {
			return usagef("--seeds %d: 1 to %d is allowed", f.seeds, sim.MostSeeds)
		}
		if err := f.check(names, c.given); err != nil {
			return err
		}
		switch {
		case f.list:
			return listScenarios(c)
		case f.replay != "":
			return replay(c, f)
		case f.judged != "":
			return judgeCoordination(c, f.judged)
		case f.trace != "" || f.record != "":
			if len(names) != 1 {
				return usagef("--trace and --record are of one scenario")
			}
			return observe(c, f, names[0])
		case len(names) == 0:
			return usagef("name a scenario, or a file; `pegasus sim list` lists the scenarios")
		}
		return runScenarios(c, f, names)
	})
}

// subcommand takes the subcommand off the operands and returns the scenarios among them. Without a subcommand all
// operands are scenarios, as for run.
func (f *simFlags) subcommand(operands []string) ([]string, error) {
	if len(operands) == 0 {
		return nil, nil
	}
	verb, rest := operands[0], operands[1:]
	file := map[string]*string{"replay": &f.replay, "coordination": &f.judged}[verb]
	switch {
	case verb == "run":
		return rest, nil
	case verb == "list":
		f.list = true
		return rest, nil
	case file == nil:
		return operands, nil
	case *file != "" || len(rest) == 0:
		return nil, usagef("%s: one file goes with it", verb)
	}
	*file = rest[0]
	return rest[1:], nil
}

// check returns an error for flags that would have no effect.
func (f *simFlags) check(names []string, given func(flagName string) bool) error {
	watched := f.trace != "" || f.record != ""
	switch {
	case (f.list || f.replay != "" || f.judged != "") && (len(names) > 0 || watched):
		return usagef("list, replay and coordination run nothing: leave out the scenarios, --trace and --record")
	case f.list && f.replay+f.judged != "" || f.replay != "" && f.judged != "":
		return usagef("list, replay or coordination, not several")
	case f.policy != "" && f.replay == "":
		return usagef("--policy %s: goes with replay; a scenario's policies are those of its plans", f.policy)
	case f.cost && f.replay == "":
		return usagef("--cost: goes with replay; it is the cost of the recorded turns")
	case f.plan != "" && !watched:
		return usagef("--plan %s: goes with --trace or --record; without them all plans are run", f.plan)
	case (f.list || f.replay != "" || f.judged != "") && (given("seed") || given("seeds")):
		return usagef("list, replay and coordination run nothing: leave out --seed and --seeds")
	case watched && (f.report != "" || f.seeds > 0):
		return usagef("--trace and --record are of one run: leave out --report and --seeds")
	}
	return nil
}

// scenarioEntry is a line of `pegasus sim list`.
type scenarioEntry struct {
	ID     string   `json:"id"`
	Title  string   `json:"title"`
	Figure string   `json:"figure,omitempty"`
	Kind   string   `json:"kind"` // simulated, formula, bench
	Plans  []string `json:"plans,omitempty"`
	Rows   []string `json:"rows,omitempty"`
	Bench  string   `json:"bench,omitempty"`
}

func listScenarios(c *call) error {
	all, err := sim.Scenarios()
	if err != nil {
		return err
	}
	entries := []scenarioEntry{}
	t := &table{head: []string{"ID", "KIND", "SCENARIO", "FIGURE"}}
	for _, sc := range all {
		e := scenarioEntry{ID: sc.ID, Title: sc.Title, Figure: sc.Figure, Kind: sc.Kind(), Bench: sc.Bench}
		for _, p := range sc.Plans {
			e.Plans = append(e.Plans, p.Name)
		}
		for _, r := range sc.Rows {
			e.Rows = append(e.Rows, r.Text)
		}
		entries = append(entries, e)
		t.add(e.ID, e.Kind, e.Title, orDash(e.Figure))
	}
	if c.json {
		return printJSON(c.out, entries)
	}
	t.print(c.out)
	fmt.Fprint(c.out, "\nKind bench needs a real clock: `make bench`.\n")
	return nil
}

// gcPercent makes scenarios use some tens of megabytes rather than a tenth of their time for collecting a
// run's garbage.
const gcPercent = 400

func runScenarios(c *call, f simFlags, names []string) error {
	all, err := chosen(names)
	if err != nil {
		return err
	}
	if f.report != "" { // before all the work
		if err := os.MkdirAll(f.report, 0o777); err != nil {
			return err
		}
	}
	debug.SetGCPercent(gcPercent)
	failed := 0
	results := []*sim.Result{}
	var sections []report.Scenario
	for _, sc := range all {
		if sc.Bench != "" && len(all) > 1 {
			sections = append(sections, report.Scenario{Scenario: sc})
			continue
		}
		seeds := sc.Seeds
		if f.seeds > 0 {
			seeds = f.seeds
		}
		r, err := sim.Judge(sc, f.seed, seeds, progress(c, sc.ID))
		if err != nil {
			return err
		}
		if r.Verdict != sim.Holds {
			failed++
		}
		results = append(results, r)
		sections = append(sections, report.Scenario{Scenario: sc, Result: r})
		if !c.json {
			printResult(c, r, len(all) == 1)
		}
	}
	if f.report != "" {
		if err := writeReport(f.report, sections); err != nil {
			return err
		}
	}
	if c.json {
		err = printJSON(c.out, results)
	}
	if err == nil && failed > 0 {
		return &exit{exitFailed, fmt.Errorf("%d of %s failed", failed, control.Count(len(results), "scenario"))}
	}
	return err
}

func writeReport(dir string, sections []report.Scenario) error {
	return writeFile(filepath.Join(dir, "index.html"), func(w io.Writer) error { return report.Write(w, sections) })
}

// observe runs one plan with one seed and writes its events.
func observe(c *call, f simFlags, name string) error {
	sc, err := loadScenario(name)
	if err != nil {
		return err
	}
	if sc.Kind() != "simulated" || len(sc.Domains) == 0 {
		return usagef("%s has nothing to trace: it has no domains", sc.ID)
	}
	at := slices.IndexFunc(sc.Plans, func(p sim.Plan) bool { return f.plan == "" || p.Name == f.plan })
	if at < 0 {
		var plans []string
		for _, p := range sc.Plans {
			plans = append(plans, p.Name)
		}
		return usagef("%s has no plan %q; there are %s", sc.ID, f.plan, strings.Join(plans, ", "))
	}
	s, err := sim.New(sc, &sc.Plans[at], f.seed)
	if err != nil {
		return err
	}
	var trace *sim.Trace
	if f.trace != "" {
		trace = s.Trace()
	}
	var recording *sim.Recording
	if f.record != "" {
		if recording, err = s.Record(""); err != nil {
			return err
		}
	}
	err = s.Run()
	if err == nil && trace != nil {
		err = writeFile(f.trace, trace.Write)
	}
	if err == nil && recording != nil {
		err = writeFile(f.record, recording.Write)
	}
	if err == nil && c.json {
		return printJSON(c.out, []map[string]any{{"scenario": sc.ID, "plan": sc.Plans[at].Name, "seed": f.seed, "events": s.Events(), "hash": fmt.Sprintf("%016x", s.Hash())}})
	}
	if err == nil {
		fmt.Fprintf(c.out, "%s, %s, seed %d: %d events in %v, hash %016x\n", sc.ID, sc.Plans[at].Name, f.seed, s.Events(), s.Now().Round(time.Millisecond), s.Hash())
	}
	return err
}

func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		file.Close()
		return fmt.Errorf("write %s: %w", name, err)
	}
	return file.Close()
}

// replay replays a recording with a scheduler.
func replay(c *call, f simFlags) error {
	file, err := os.Open(f.replay)
	if err != nil {
		return err
	}
	defer file.Close()
	rec, err := sim.ReadRecording(file)
	if err != nil {
		return fmt.Errorf("%s: %w", f.replay, err)
	}
	r, err := rec.Replay(f.policy)
	if err != nil {
		return err
	}
	out := replayed{Replayed: r}
	if f.cost {
		if out.Cost, err = costOf(rec, f.policy); err != nil {
			return err
		}
	}
	if c.json {
		err = printJSON(c.out, []replayed{out})
	} else {
		fmt.Fprintf(c.out, "%s: %d events, %d turns, %d decisions; %d turns decide otherwise\n", r.Policy, r.Events, r.Turns, r.Decisions, r.Differ)
		if r.First != "" {
			fmt.Fprintf(c.out, "first %s\n", r.First)
		}
		fmt.Fprintln(c.out)
		outcomeTable(r).print(c.out)
		if out.Cost != nil {
			fmt.Fprintf(c.out, "with its events, a turn takes %s and %.2f allocations\n", short(int64(out.Cost.Nanos)), out.Cost.Allocations)
		}
	}
	if err == nil && r.Differ > 0 && f.policy == "" {
		return fmt.Errorf("the recorded policy decides otherwise than it did: it has changed since, or the file has")
	}
	return err
}

// outcomeTable returns the outcome of the recorded decisions and, if the replay's differ, theirs at the same
// events.
func outcomeTable(r *sim.Replayed) *table {
	t := &table{head: []string{"POLICY", "DOMAIN", ">SHARE", ">DIFFERENCE", ">WITH WORK", ">WAITS", ">MEAN WAIT", ">LONGEST", ">USED"},
		optional: []string{"USED", "LONGEST", "WAITS"}}
	add := func(policy string, all []sim.Outcome, other []sim.Outcome) {
		for i, o := range all {
			difference := "-"
			if other != nil {
				difference = fmt.Sprintf("%+.1f", 100*(o.Share-other[i].Share))
			}
			t.add(policy, o.Domain, percent(o.Share), difference, short(o.Work), fmt.Sprint(o.Waits), short(o.Wait), short(o.Longest), short(o.Used))
		}
	}
	add(r.Recorded+", recorded", r.Was, nil)
	if r.Differ > 0 {
		add(r.Policy, r.Is, r.Was)
	}
	return t
}

// replayed is the result of a replay, and its measured cost.
type replayed struct {
	*sim.Replayed
	Cost *turnCost `json:"cost,omitempty"`
}

// turnCost is the cost of a turn of the scheduler, with the events before it.
type turnCost struct {
	Nanos       float64 `json:"ns"`
	Allocations float64 `json:"allocations"`
}

// costOf plays a recording again and again for a while. The time until the first turn, in which a scheduler
// is made and its domains attached, is not counted.
func costOf(rec *sim.Recording, policy string) (*turnCost, error) {
	first := slices.IndexFunc(rec.Entries, func(e sim.Entry) bool { return e.Choice == nil && e.Event == nil })
	if first < 0 {
		return nil, fmt.Errorf("the recording has no turns")
	}
	all, turns, err := playCost(rec, policy)
	if err != nil {
		return nil, err
	}
	before, _, err := playCost(&sim.Recording{Header: rec.Header, Entries: rec.Entries[:first]}, policy)
	if err != nil {
		return nil, err
	}
	return &turnCost{(all.Nanos - before.Nanos) / float64(turns), (all.Allocations - before.Allocations) / float64(turns)}, nil
}

// playCost returns the cost of playing a recording once: the least time of many, because other load on the
// machine only adds to it.
func playCost(rec *sim.Recording, policy string) (c turnCost, turns int, err error) {
	const enough = 200 * time.Millisecond
	var before, after runtime.MemStats
	least, n := time.Duration(math.MaxInt64), 0
	runtime.ReadMemStats(&before)
	for end := time.Now().Add(enough); n == 0 || time.Now().Before(end); n++ {
		began := time.Now()
		r, err := rec.Decide(policy)
		if err != nil {
			return c, 0, err
		}
		least, turns = min(least, time.Since(began)), r.Turns
	}
	runtime.ReadMemStats(&after)
	return turnCost{float64(least), float64(after.Mallocs-before.Mallocs) / float64(n)}, turns, nil
}

// chosen loads the named scenarios; "all" are the built-in ones.
func chosen(names []string) ([]*sim.Scenario, error) {
	if slices.Contains(names, "all") {
		if len(names) > 1 {
			return nil, usagef("all stands for every built-in scenario: name no others with it")
		}
		return sim.Scenarios()
	}
	var all []*sim.Scenario
	for _, name := range names {
		sc, err := loadScenario(name)
		if err != nil {
			return nil, err
		}
		all = append(all, sc)
	}
	return all, nil
}

// loadScenario returns a scenario of this name, or that of a file.
func loadScenario(name string) (*sim.Scenario, error) {
	sc, err := sim.Load(name)
	if errors.Is(err, sim.ErrNoScenario) {
		ids, _ := sim.Names()
		err = fmt.Errorf("%w%s", err, configs.DidYouMean(name, append(ids, "all")))
	}
	return sc, err
}

// progress returns a function that shows the progress on a terminal, after two seconds.
func progress(c *call, id string) func(done, of int) {
	if !isTerminal(c.err) {
		return nil
	}
	begun := time.Now()
	shown := time.Time{}
	return func(done, of int) {
		now := time.Now()
		if now.Sub(begun) < 2*time.Second || (now.Sub(shown) < 200*time.Millisecond && done < of) {
			return
		}
		shown = now
		if done == of {
			fmt.Fprintf(c.err, "\r\x1b[K")
			return
		}
		fmt.Fprintf(c.err, "\r\x1b[K%s: %d of %d runs, %v left", id, done, of,
			(time.Duration(of-done) * now.Sub(begun) / time.Duration(done)).Round(time.Second))
	}
}

func printResult(c *call, r *sim.Result, details bool) {
	fmt.Fprintf(c.out, "%s  %s: %s\n", r.Scenario, r.Title, r.Verdict)
	if details && len(r.Metrics) > 0 {
		fmt.Fprintln(c.out)
		planTable(r).print(c.out)
		fmt.Fprintln(c.out)
		for _, plan := range r.Plans() {
			if n := r.Metrics[plan][""]["failed"]; n > 0 {
				fmt.Fprintf(c.out, "%s: there was no memory for %s of the domains\n\n", plan, number(n))
			}
		}
	}
	t := &table{head: []string{"", ">MEAN", ">LEAST", ">MOST", ">BOUND", ">SEEDS", "ROW"}, prose: true}
	for _, v := range r.Rows {
		mark := "ok"
		if v.Verdict != sim.Holds {
			mark = "FAILS"
		}
		text := v.Text
		if v.Why != "" {
			text += " (" + v.Why + ")"
		}
		t.add(mark, number(v.Mean), number(v.Least), number(v.Most), bounds(v), percent(v.Part), text)
	}
	if len(r.Rows) > 0 {
		t.print(c.out)
	}
	fmt.Fprintln(c.out)
}

func bounds(v sim.Verdict) string {
	switch {
	case v.Min != nil && v.Max != nil:
		return number(*v.Min) + " … " + number(*v.Max)
	case v.Min != nil:
		return "≥ " + number(*v.Min)
	default:
		return "≤ " + number(*v.Max)
	}
}

func number(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.4g", f), ".0") }

// planTable returns the results of each plan, for all domains and for each.
func planTable(r *sim.Result) *table {
	columns := []string{"work", "run", "rate", "iqr", "share", "part", "wait_p50", "wait_p99", "latency_p50", "latency_p85"}
	t := &table{head: []string{"PLAN", "DOMAIN"}, optional: []string{"IQR", "RUN", "LATENCY P50", "PART", "LATENCY P85", "WAIT P50", "WORK"}}
	for _, name := range columns {
		t.head = append(t.head, ">"+strings.ToUpper(strings.ReplaceAll(name, "_", " ")))
	}
	for _, plan := range r.Plans() {
		for _, domain := range r.Domains(plan) {
			cells := []string{plan, domain}
			if domain == "" {
				cells[1] = "(mean)"
			}
			for _, name := range columns {
				cell := "-"
				if v, ok := r.Metrics[plan][domain][name]; ok {
					cell = number(v)
				}
				cells = append(cells, cell)
			}
			t.add(cells...)
		}
	}
	return t
}
