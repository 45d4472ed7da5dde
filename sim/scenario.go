package sim

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"io/fs"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"

	"pegasus/policies"
	"pegasus/vcpu"
)

// Scenario is an experiment: its setup, the policies to compare, and the expected results. Durations are
// written "1.5ms", sizes "24 MB".
type Scenario struct {
	ID     string
	Title  string
	Figure string   // the published figure that it reproduces
	Notes  string   // limits of the model, and other remarks
	Claims []string // published results, for the report

	Profile   string        // of the machine; "2011"
	Override  Override      `toml:"profile_override"`
	CPUs      int           `toml:"cpus"`
	Scheduler string        `toml:"cpu_scheduler"` // of the CPUs: "credit", Xen's of 2011 and the default, or "eevdf", Linux'
	Runs      int           // it ends when the domains have completed this many on average,
	Time      time.Duration // or at that time
	Window    time.Duration // of statistics over time; "1s"
	From, To  time.Duration // the measured part of the windows
	Seeds     int           // 20
	Bench     string        // the benchmark that measures it on a real clock; it is not simulated

	Accelerators []Accelerator       `toml:"accelerator"`
	Domains      []Domain            `toml:"domain"`
	Workloads    map[string]Workload `toml:"workload"`
	Plans        []Plan              `toml:"plan"`
	Rows         []Row               `toml:"row"`
	Charts       []Chart             `toml:"chart"`
	Let          map[string]float64  // names for numbers, for use in rows
}

// Accelerator is a device, or Count identical devices.
type Accelerator struct {
	Name   string
	Count  int
	Memory Bytes
}

// Domain is a domain, or Count identical domains (their names are numbered from 1).
type Domain struct {
	Name        string
	Count       int
	Accelerator string // "": placed by free capacity
	Workload    string
	Threads     int   // that run the workload, each for itself; 1
	CPUs        []int `toml:"cpus"` // that its threads are pinned to in turn; none: each thread has a CPU to itself
	Depth       int   // calls in flight that the backend allows; 1
	From, To    time.Duration
	FromTo      time.Duration `toml:"from_to"` // random start between from and this time
	Runs        int           // after this many it leaves; 0: never
	Away        time.Duration // after each run it leaves, and returns after this time; 0: it stays
	Memory      Bytes         // device memory allocated while it is attached
	Background  bool          // the run's end does not wait for it, and no share is owed to it

	Attributes
}

// Attributes are the attributes of a domain that policies use: its weights and the promises to it. In a file they are
// keys of the domain.
type Attributes struct {
	Credits     int
	CreditsTo   int    `toml:"credits_to"` // random number between credits and this
	CPUCredits  int    `toml:"cpu_credits"`
	SLO         int    `toml:"slo"` // ‰
	Bandwidth   int    // ‰
	Group       string // its virtual accelerator
	Priority    int
	Interactive bool
	Realtime    bool // its threads precede all others on their CPUs
	Throughput  bool // its requests may follow each other without a new decision (HT)
	Reserve     Reserve
	Period      time.Duration // of jobs
	Deadline    time.Duration
}

// Reserve is a domain's reserve: kind "PE", "AE" or "background".
type Reserve struct {
	Kind         string
	Shared       string
	Cost, Period time.Duration
}

var reserves = map[string]vcpu.ReserveKind{"": vcpu.NoReserve, "PE": vcpu.Posterior, "AE": vcpu.Apriori, "background": vcpu.Background}

// domain returns the domain as the scheduler sees it.
func (a *Attributes) domain(id vcpu.ID) policies.Domain {
	return policies.Domain{ID: id, Credits: vcpu.Credits(a.Credits), CPU: vcpu.Credits(a.CPUCredits), Promise: vcpu.Promise{
		SLO: a.SLO, Bandwidth: a.Bandwidth, Group: a.Group, Priority: a.Priority, Interactive: a.Interactive, Throughput: a.Throughput,
		Reserve: vcpu.Reserve{Kind: reserves[a.Reserve.Kind], Shared: a.Reserve.Shared, Cost: a.Reserve.Cost, Period: a.Reserve.Period},
		Period:  a.Period, Deadline: a.Deadline,
	}}
}

// Workload is a program that runs again and again:
//
//	pre, copy in, calls × (cpu, copy call_in, kernel, copy call_out), copy out, post, think
//
// Up to ahead calls are outstanding at a time. A run ends when all calls have ended; a run without copies in
// or out, and with fewer calls than ahead, ends when it has made them. With a period, runs are released that
// far apart.
type Workload struct {
	Pre, Post time.Duration
	In, Out   Bytes
	Calls     int
	CPU       time.Duration `toml:"cpu"`
	CallIn    Bytes         `toml:"call_in"`
	CallOut   Bytes         `toml:"call_out"`
	Kernel    time.Duration
	KernelTo  time.Duration `toml:"kernel_to"` // each domain has its own, a random time between kernel and this
	Call      time.Duration // the backend's time for a call
	Ahead     int
	Think     time.Duration
	Period    time.Duration
	Work      float64  // done by a run, in any unit; 1
	Noise     *int     // σ of the duration of kernels, ‰ (log-normal)
	Program   []string // the equivalent program of guest/bench, with its arguments, that `make policies-e2e` runs
}

// Plan is one way to run the scenario: a policy with its parameters.
type Plan struct {
	Name       string
	Policy     string
	Study      string // in place of a policy: a model of one mechanism, with the options as its parameters
	Copy       string // policy of the copy engines, if they have their own (MRQ)
	Mode       string // "paper" or "production"
	Options    map[string]any
	Domains    []string            // that take part; none listed: all
	HandOver   time.Duration       // to open another domain's gate
	Swap       string              // treatment of memory beyond the device's: "host", "area"; "": allocations fail
	Cost       time.Duration       // of lending single requests, each time
	Latency    time.Duration       // from a scheduler's timer to its decision
	CPUFollows bool                `toml:"cpu_follows"` // domains' CPU weights follow their windows, as with cpu_follows_gpu
	Call       *time.Duration      // the backend's time for a call, overriding the workloads
	Set        map[string]Override // overrides of domains' fields
	Override   Override            `toml:"profile_override"`
}

// Chart is a figure of the report: "box" of the work of runs, "time" of shares, "bar" of a metric, by plan
// and domain, or "beside": published values beside simulated ones.
type Chart struct {
	Kind    string
	Metric  string // of bars
	Title   string
	Unit    string
	Plans   []string  // all
	Domains []string  // all
	Band    []float64 // of shares over time: the published bounds
	Bars    []Bar     `toml:"bar"` // of a "beside" chart
}

// Bar is a value, an expression as in a row, and its published counterpart: a number, or a least and a
// greatest value. A published "at least" has no greatest value.
type Bar struct {
	Name  string
	Value string
	Low   *float64
	High  *float64

	tree ast.Expr
}

// Profile is a machine. Change is the mean time to change contexts.
type Profile struct {
	Name        string
	Poll        time.Duration // ends of requests are noticed at multiples of this; 0: at once
	Spin        time.Duration // how long a guest spins for a reply before it blocks
	Slice       time.Duration // for which a thread keeps its CPU, under EEVDF; 0: 3 ms
	Notify      time.Duration // from an engine's end to the guest
	Engines     bool          // copies have separate engines
	Early       bool          // the backend decodes calls before the gate, as the daemon does, not behind it
	Channels    bool          // the hardware serves the domains' queues in turn, not in order of submission
	Random      bool          // the hardware serves a random waiting request
	Change      time.Duration
	ChangeSigma int           `toml:"change_sigma"` // ‰, log-normal
	Epoch       time.Duration // period for which the driver is faster or slower,
	EpochSigma  int           `toml:"epoch_sigma"` // by a factor with this σ, ‰
	StallPart   int           `toml:"stall_part"`  // ‰ of the changes take up to Stall more
	Stall       time.Duration
	Noise       int           // σ of the duration of requests, ‰
	CPUNoise    int           `toml:"cpu_noise"`  // σ of the programs' CPU times, ‰
	CopySetup   time.Duration `toml:"copy_setup"` // of a copy, and
	Bandwidth   Bytes         // per second
	Within      Bytes         // per second, within the device
	Chunk       Bytes         // limit of the copies before and after the calls of a run, each a call; 0: any size
}

// Override changes single values of a profile.
type Override map[string]any

// copyTime returns the engine's time for moving that many bytes.
func (p *Profile) copyTime(b Bytes) time.Duration {
	return p.CopySetup + time.Duration(int64(b)*1000/max(int64(p.Bandwidth)/1_000_000, 1))
}

// within returns the time for moving that many bytes within the device.
func (p *Profile) within(b Bytes) time.Duration {
	return p.CopySetup + time.Duration(int64(b)*1000/max(int64(p.Within)/1_000_000, 1))
}

// finite reports whether the domains leave by themselves.
func (sc *Scenario) finite() bool {
	return !slices.ContainsFunc(sc.Domains, func(d Domain) bool { return !d.Background && d.Runs == 0 }) && len(sc.Domains) > 0
}

// Bytes is a size, written "24 MB" or "1 GB" (powers of ten) or "4 KiB".
type Bytes int64

func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	number := strings.TrimRight(s, "kKMGTiB ")
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return fmt.Errorf("%q isn't a size such as \"24 MB\"", s)
	}
	factor, ok := map[string]float64{"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[strings.TrimSpace(s[len(number):])]
	if !ok || !(f >= 0 && f*factor < 1<<62) { // rejects NaN, too
		return fmt.Errorf("%q isn't a size such as \"24 MB\" or \"4 KiB\"", s)
	}
	*b = Bytes(f * factor)
	return nil
}

//go:embed scenarios
var files embed.FS

// parts are tables that scenarios refer to by name.
type parts struct {
	Profiles  map[string]Profile  `toml:"profile"`
	Workloads map[string]Workload `toml:"workload"`
}

// shared returns the part common to all scenarios: scenarios/shared.toml. The programs that link this package and
// simulate nothing, such as workers, start sooner without it.
var shared = sync.OnceValue(func() (all parts) {
	text, err := files.ReadFile("scenarios/shared.toml")
	if err == nil {
		err = decode(text, &all)
	}
	if err != nil {
		panic(fmt.Sprintf("sim: scenarios/shared.toml: %v", err))
	}
	return all
})

// Scenarios returns the built-in scenarios, in the papers' order.
func Scenarios() ([]*Scenario, error) {
	names, err := fs.Glob(files, "scenarios/*.toml")
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for _, name := range names {
		if path.Base(name) == "shared.toml" {
			continue
		}
		sc, err := read(name)
		if err != nil {
			return nil, err
		}
		all = append(all, sc)
	}
	slices.SortStableFunc(all, func(a, b *Scenario) int { return natural(a.ID, b.ID) })
	return all, nil
}

// natural compares names with numbers in them.
func natural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, _ := strconv.Atoi(a[:na])
			y, _ := strconv.Atoi(b[:nb])
			if x != y {
				return x - y
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// ErrNoScenario is the error of Load for a name that neither a scenario nor a file has.
var ErrNoScenario = errors.New("there is no scenario and no file")

// Names returns the ids of the built-in scenarios, in the order of their papers.
func Names() ([]string, error) {
	own, err := fs.Glob(files, "scenarios/*.toml")
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, file := range own {
		if id := strings.TrimSuffix(path.Base(file), ".toml"); id != "shared" {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, natural)
	return ids, nil
}

// Load returns the built-in scenario of that id, or the one in that file. Without either it returns ErrNoScenario.
func Load(name string) (*Scenario, error) {
	ids, err := Names()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if strings.EqualFold(id, name) {
			return read("scenarios/" + id + ".toml")
		}
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w %q; scenarios are %s", ErrNoScenario, name, strings.Join(ids, ", "))
	}
	if err != nil {
		return nil, err
	}
	return Parse(name, text)
}

// read reads a built-in scenario.
func read(file string) (*Scenario, error) {
	text, err := files.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(path.Base(file), text)
}

// Parse reads a scenario and checks it. Errors name the file and the key.
func Parse(name string, text []byte) (*Scenario, error) {
	sc := &Scenario{}
	if err := decode(text, sc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var raw map[string]any
	err := toml.Unmarshal(text, &raw)
	if err == nil {
		err = finite("", raw)
	}
	if err == nil {
		err = zeros("", raw)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, located(text, "", err))
	}
	if sc.ID == "" {
		sc.ID = strings.TrimSuffix(path.Base(name), ".toml")
	}
	if err := sc.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, located(text, quoted(err), err))
	}
	return sc, nil
}

func decode(text []byte, into any) error {
	meta, err := toml.Decode(string(text), into)
	var wrong toml.ParseError
	if errors.As(err, &wrong) {
		return fmt.Errorf("line %d: %w", wrong.Position.Line, err)
	}
	if err != nil && strings.Contains(err.Error(), "incompatible types") {
		return fmt.Errorf("%w; durations are written \"1.5ms\", sizes \"24 MB\", names \"x\", numbers 5, lists [\"x\"]", err)
	}
	if err != nil {
		return err
	}
	for _, key := range meta.Undecoded() {
		if !free(key) {
			last := key[len(key)-1]
			return located(text, last, fmt.Errorf("unknown key %q%s; `pegasus help sim` and docs/simulator.md name those there are", key, closest(last, keyNames(reflect.TypeOf(into)))))
		}
	}
	return nil
}

// located prefixes an error with the line of the text that it refers to, if only one line contains the word
// or the key that the error quotes.
func located(text []byte, word string, err error) error {
	line := lineOf(text, word)
	if said, _, ok := strings.Cut(err.Error(), " = "); ok && line == 0 {
		line = lineOf(text, said[strings.LastIndex(said, " ")+1:])
	}
	if line == 0 {
		return err
	}
	return fmt.Errorf("line %d: %w", line, err)
}

// lineOf returns the only line of the text that contains a word; 0: none or several do.
func lineOf(text []byte, word string) int {
	line := 0
	for i, l := range bytes.Split(text, []byte("\n")) {
		l, _, _ = bytes.Cut(l, []byte("#"))
		if !slices.ContainsFunc(bytes.FieldsFunc(l, func(r rune) bool { return strings.ContainsRune(" \t\"'{}[],=.", r) }), func(f []byte) bool { return string(f) == word }) {
			continue
		}
		if line > 0 {
			return 0
		}
		line = i + 1
	}
	return line
}

// quoted returns the last quoted word of an error's text: the wrong value.
func quoted(err error) string {
	parts := strings.Split(err.Error(), "\"")
	if len(parts) < 3 {
		return ""
	}
	return parts[len(parts)-2]
}

// names lists the keys.
func names[T any](all map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}

// free reports whether a key is below one that takes any key; those are checked when a plan is tried.
func free(key toml.Key) bool {
	return slices.ContainsFunc(key[:len(key)-1], func(k string) bool { return k == "set" || k == "options" || k == "profile_override" })
}

// check sets defaults and returns an error if the scenario can't run.
func (sc *Scenario) check() error {
	if sc.Profile == "" {
		sc.Profile = "2011"
	}
	if sc.Seeds == 0 {
		sc.Seeds = 20
	}
	if sc.Window == 0 {
		sc.Window = time.Second
	}
	if err := sc.bounds(); err != nil {
		return err
	}
	if _, ok := shared().Profiles[sc.Profile]; !ok {
		return fmt.Errorf("profile = %q: there are %s", sc.Profile, names(shared().Profiles))
	}
	if !slices.Contains([]string{"", "credit", "eevdf"}, sc.Scheduler) {
		return fmt.Errorf("cpu_scheduler = %q; there are credit, eevdf", sc.Scheduler)
	}
	for i := range sc.Plans {
		if p := &sc.Plans[i]; p.CPUFollows && sc.Scheduler != "eevdf" {
			return fmt.Errorf("plan %s: cpu_follows: only weights of cpu_scheduler = \"eevdf\" follow", p.Name)
		}
	}
	for _, c := range sc.Charts {
		if !slices.Contains([]string{"box", "time", "bar", "beside"}, c.Kind) {
			return fmt.Errorf("chart %q: kind = %q; there are box, time, bar, beside", c.Title, c.Kind)
		}
		if len(c.Band) != 0 && len(c.Band) != 2 {
			return fmt.Errorf("chart %q: band = %v; give the least and the most", c.Title, c.Band)
		}
		for i := range c.Bars {
			tree, err := parser.ParseExpr(c.Bars[i].Value)
			if err != nil {
				return fmt.Errorf("chart %q: bar %q: value = %q: %w%s", c.Title, c.Bars[i].Name, c.Bars[i].Value, err, sc.spelling())
			}
			c.Bars[i].tree = tree
		}
	}
	for i := range sc.Rows {
		if err := sc.Rows[i].check(); err != nil {
			return fmt.Errorf("%w%s", err, sc.spelling())
		}
	}
	if sc.Bench == "" && len(sc.Domains)+len(sc.Plans)+len(sc.Rows) == 0 {
		return errors.New("nothing to simulate; give [[accelerator]], [[domain]] and [[plan]]")
	}
	studied := len(sc.Plans) > 0 && !slices.ContainsFunc(sc.Plans, func(p Plan) bool { return p.Study == "" })
	if sc.Bench != "" || len(sc.Domains) == 0 && len(sc.Plans) == 0 {
		return sc.references()
	}
	if sc.Runs <= 0 && sc.Time <= 0 && !studied && !sc.finite() {
		return errors.New("no end of the run; give runs = N or time = \"10s\"")
	}
	if len(sc.Plans) == 0 {
		return errors.New("no policy to simulate; give [[plan]]")
	}
	if len(sc.Domains) == 0 && !studied {
		return errors.New("no workload to simulate; give [[domain]]")
	}
	for i := range sc.Plans {
		if p := &sc.Plans[i]; p.Name == "" {
			p.Name = p.Policy
		}
	}
	if err := sc.named(); err != nil {
		return err
	}
	if sc.Runs > 0 && sc.Time <= 0 && !slices.ContainsFunc(sc.Domains, func(d Domain) bool { return !d.Background }) {
		return errors.New("all domains are in the background, so runs never ends; give time")
	}
	for i := range sc.Plans {
		p := &sc.Plans[i]
		for _, name := range p.Domains {
			if !slices.ContainsFunc(sc.Domains, func(d Domain) bool { return d.Name == name }) {
				return fmt.Errorf("plan %q: there is no domain %q%s", p.Name, name, closest(name, sc.domainNames()))
			}
		}
		if err := sc.tried(p); err != nil {
			return fmt.Errorf("plan %q: %w", p.Name, err)
		}
	}
	return sc.references()
}

// domainNames returns the names of the domains, one name for identical ones.
func (sc *Scenario) domainNames() (names []string) {
	for _, d := range sc.Domains {
		names = append(names, d.Name)
	}
	return names
}

// tried builds a plan once, to check that it can be built.
func (sc *Scenario) tried(p *Plan) error {
	if p.Study != "" {
		_, err := p.study(1)
		return err
	}
	profile, err := override(shared().Profiles[sc.Profile], sc.Override, p.Override)
	if err == nil {
		err = profile.check()
	}
	if err == nil {
		err = ranges("plan", *p)
	}
	if err != nil {
		return err
	}
	if !slices.Contains([]string{swapNever, swapHost, swapArea}, p.Swap) {
		return fmt.Errorf("swap = %q; there are host, area, or none", p.Swap)
	}
	_, err = New(sc, p, 1)
	return err
}

// Workload returns the workload that a domain runs: the scenario's own of that name, or the shared one.
func (sc *Scenario) Workload(d *Domain) (Workload, error) {
	if w, ok := sc.Workloads[d.Workload]; ok {
		return w, nil
	}
	if w, ok := shared().Workloads[d.Workload]; ok {
		return w, nil
	}
	all := slices.Concat(slices.Sorted(maps.Keys(sc.Workloads)), slices.Sorted(maps.Keys(shared().Workloads)))
	return Workload{}, fmt.Errorf("domain %q: there is no [workload.NAME] of the name %q, nor one that comes along%s", d.Name, d.Workload, closest(d.Workload, all))
}

// TakingPart returns the domains of a plan one by one, with individual names and the plan's overrides.
func (sc *Scenario) TakingPart(p *Plan) ([]Domain, error) {
	var all []Domain
	for i := range sc.Domains {
		d := &sc.Domains[i]
		if !p.has(d.Name) {
			continue
		}
		for k := range max(d.Count, 1) {
			name := d.numbered(k)
			one, err := p.set(d, name)
			if err != nil {
				return nil, err
			}
			one.Name, one.Count = name, 1
			all = append(all, *one)
		}
	}
	return all, nil
}

// numbered returns the name of the i-th of identical accelerators.
func (a *Accelerator) numbered(i int) string {
	if a.Count > 1 {
		return fmt.Sprintf("%s%d", a.Name, i)
	}
	return a.Name
}

// numbered returns the name of the i-th of identical domains.
func (d *Domain) numbered(i int) string {
	if d.Count > 1 {
		return fmt.Sprintf("%s%d", d.Name, i+1)
	}
	return d.Name
}

// workload returns a domain's workload under this plan, with its random values drawn.
func (sc *Scenario) workload(d *Domain, plan *Plan, p *Profile, chance *stream) (Workload, error) {
	w, err := sc.Workload(d)
	if err != nil {
		return w, err
	}
	if plan.Call != nil {
		w.Call = *plan.Call
	}
	if w.KernelTo > w.Kernel {
		w.Kernel += chance.below(w.KernelTo - w.Kernel)
	}
	if d.CreditsTo > d.Credits {
		d.Credits += int(chance.below(time.Duration(d.CreditsTo - d.Credits + 1)))
	}
	if p.Chunk > 0 && max(w.In, w.Out)/p.Chunk > mostParts {
		return w, fmt.Errorf("workload %q: copies of %d bytes in pieces of %d: at most %d pieces", d.Workload, max(w.In, w.Out), p.Chunk, mostParts)
	}
	return w, nil
}

// set returns the domain with this plan's overrides.
func (p *Plan) set(d *Domain, name string) (*Domain, error) {
	out := *d
	for _, key := range []string{d.Name, name} {
		if err := assign(&out, p.Set[key]); err != nil {
			return nil, fmt.Errorf("domain %q: %w", name, err)
		}
		if d.Name == name {
			break
		}
	}
	return &out, nil
}

// profileOf returns the machine under a plan. Overrides have been checked.
func (sc *Scenario) profileOf(p *Plan) *Profile {
	out, _ := override(shared().Profiles[sc.Profile], sc.Override, p.Override)
	return &out
}

func override(p Profile, all ...Override) (Profile, error) {
	for _, o := range all {
		if err := assign(&p, o); err != nil {
			return p, err
		}
	}
	return p, nil
}

// assign sets fields of a struct by their names in a file.
func assign(to any, values map[string]any) error {
	v := reflect.ValueOf(to).Elem()
	for _, key := range slices.Sorted(keys(values)) {
		f := field(v, key)
		if !f.IsValid() {
			return fmt.Errorf("unknown parameter %q", key)
		}
		if err := set(f, values[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// setOptions sets the options of a policy by their names in a file: those of every policy, and the parameters.
func setOptions(o *policies.Options, values map[string]any) error {
	common := struct {
		Mode                         *policies.Mode
		Accounts                     *policies.Accounts
		Tick, RotationCap, IdleYield *time.Duration
	}{&o.Mode, &o.Accounts, &o.Tick, &o.RotationCap, &o.IdleYield}
	for _, key := range slices.Sorted(keys(values)) {
		f := field(reflect.ValueOf(common), key)
		p := policies.Parameter(key)
		var err error
		switch {
		case f.IsValid():
			err = set(f.Elem(), values[key])
		case p == nil:
			names := []string{"tick", "rotation_cap", "idle_yield", "accounts"}
			for _, p := range policies.Params() {
				names = append(names, p.Key)
			}
			return fmt.Errorf("unknown parameter %q%s", key, closest(key, names))
		default:
			err = setParameter(&o.Values, p, values[key])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// setParameter sets a parameter. As in the configuration, 0 is 0 where it has a meaning, and an error elsewhere.
func setParameter(v *policies.Values, p *policies.Param, value any) error {
	to := any(new(int))
	switch p.Kind {
	case policies.Duration:
		to = new(time.Duration)
	case policies.Flag:
		to = new(bool)
	case policies.Word:
		if word, ok := value.(string); ok {
			i := slices.Index(p.Words, word)
			if i < 0 {
				return fmt.Errorf("%q; there are %s", word, strings.Join(p.Words, ", "))
			}
			value = int64(i)
		}
	}
	f := reflect.ValueOf(to).Elem()
	if err := set(f, value); err != nil {
		return err
	}
	if f.Kind() == reflect.Bool {
		f = reflect.ValueOf(map[bool]int64{true: 1}[f.Bool()])
	}
	n := f.Int()
	switch {
	case n != 0 || p.Kind == policies.Flag || p.Kind == policies.Word:
		v.SetOption(p, n)
	case p.Min > 0 && p.Zero == "":
		least, most := reflect.ValueOf(p.Min).Convert(f.Type()), reflect.ValueOf(p.Max).Convert(f.Type())
		return fmt.Errorf("%v: %v to %v is allowed; leave it out for the default", value, least, most)
	default:
		v.Set(p, 0)
	}
	return nil
}

func keys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// field returns the field of a struct that has that name in a file.
func field(v reflect.Value, key string) reflect.Value {
	f, ok := v.Type().FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, strings.ReplaceAll(key, "_", "")) })
	if !ok || f.Anonymous { // the name of an embedded group is no key
		return reflect.Value{}
	}
	return v.FieldByIndex(f.Index)
}

func set(f reflect.Value, value any) error {
	text, isText := value.(string)
	if table, ok := value.(map[string]any); ok && f.Kind() == reflect.Struct {
		return assign(f.Addr().Interface(), table)
	}
	if list, ok := value.([]any); ok && f.Kind() == reflect.Slice {
		all := reflect.MakeSlice(f.Type(), len(list), len(list))
		for i := range list {
			if err := set(all.Index(i), list[i]); err != nil {
				return err
			}
		}
		f.Set(all)
		return nil
	}
	switch {
	case f.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if !isText || err != nil {
			return fmt.Errorf("%v isn't a duration such as \"1.5ms\"", value)
		}
		f.SetInt(int64(d))
		return nil
	case f.Type() == reflect.TypeFor[Bytes]() && isText:
		return f.Addr().Interface().(*Bytes).UnmarshalText([]byte(text))
	}
	v := reflect.ValueOf(value)
	if !v.CanConvert(f.Type()) || v.Kind() == reflect.String != (f.Kind() == reflect.String) || f.Kind() == reflect.Bool != (v.Kind() == reflect.Bool) {
		return fmt.Errorf("%v isn't a %v", value, f.Type())
	}
	f.Set(v.Convert(f.Type()))
	return nil
}

// has reports whether a domain takes part.
func (p *Plan) has(name string) bool {
	return len(p.Domains) == 0 || slices.Contains(p.Domains, name)
}

// scheduler returns a new scheduler for an accelerator.
func (p *Plan) scheduler() (*policies.Scheduler, error) {
	mode := policies.Production
	switch p.Mode {
	case "paper":
		mode = policies.Paper
	case "", "production":
	default:
		return nil, fmt.Errorf("mode = %q; there are paper, production", p.Mode)
	}
	o := policies.Defaults(mode)
	if err := setOptions(&o, p.Options); err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	var all []policies.Policy
	for _, name := range []string{p.Policy, p.Copy} {
		if name == "" {
			continue
		}
		policy, err := policies.New(name, o)
		if err != nil {
			return nil, err
		}
		all = append(all, policy)
	}
	if len(all) == 0 {
		return nil, errors.New("no policy is named")
	}
	return policies.NewScheduler(all...), nil
}

// Kind returns the scenario's way of evaluation: "simulated", by a "formula" over numbers that it contains,
// or on a real clock by "bench".
func (sc *Scenario) Kind() string {
	switch {
	case sc.Bench != "":
		return "bench"
	case len(sc.Plans) == 0:
		return "formula"
	}
	return "simulated"
}
