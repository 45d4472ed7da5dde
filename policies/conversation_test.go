package policies

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/vcpu"
)

var rewrite = flag.Bool("rewrite", false, "write what the scheduler says into the conversations")

// TestConversations plays the files in testdata/conversations. Each line is an input of a scheduler at the
// current time, several inputs at once being separated by semicolons; lines beginning with > are the expected
// output.
//
//	policy NAME [paper] [tick D] [cap D] [yield D] [scan D] [debt N] [boost N] [skip N]
//	     [order fifo|fp|edf] [accounts mrq] [arrival on] [launches N] [mean D] [limit %]
//	     [quantum D] [jiffy D]
//	attach ID [CREDITS] [cpu CREDITS] [slo ‰] [group NAME] [priority N] [bandwidth ‰]
//	     [throughput on] [interactive on] [deadline D] [pe|ae C/T] [shared NAME]
//	     [background on]
//	detach ID
//	arrives ID · drains ID [compute|copy] · opens ID · closes ID
//	uses ID D [copy D] [idle D]
//	asks ID D [copy] [released D] [bytes N] [threads N]
//	             a request that takes D waits at its gate; none: asks ID 0s
//	ends ID D [copy]
//	             one took D
//	sample ID [runs | next ‰] [rem CREDITS], …
//	             the hypervisor's schedule: the domain's vCPU runs, or for which part of
//	             the coming period, and the CPU credit left; sample old D, …: its age;
//	             sample none: no data
//	wait D       advances time, calling Ready whenever it is due
//	why          prints the explanation
//	loaded       prints whether placement shall avoid the accelerator
//	refused ID   prints which slot refuses the domain's request
//	used         prints the use of each domain, and of absent ones
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/conversations/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no conversations found", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { converse(t, file) })
	}
}

func converse(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &conversation{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, ">") {
			continue
		}
		c.out.WriteString(line)
		c.say(t, line)
	}
	got := c.out.String()
	if got == string(text) {
		return
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the conversation went otherwise:\n%s\nin the file:\n%s", got, text)
}

// conversation is a scheduler with the state of a conversation.
type conversation struct {
	out   strings.Builder
	sched *Scheduler
	now   Time
	asked uint64
}

func (c *conversation) say(t *testing.T, line string) {
	line, _, _ = strings.Cut(line, "#")
	for said := range strings.SplitSeq(line, ";") {
		words := strings.Fields(said)
		if len(words) == 0 {
			continue
		}
		if words[0] == "wait" {
			c.wait(length(t, words[1]))
			return
		}
		c.input(t, words)
	}
	if c.sched != nil && strings.TrimSpace(line) != "" {
		c.ready()
	}
}

func (c *conversation) input(t *testing.T, words []string) {
	switch words[0] {
	case "policy":
		p := policiesOf(t, words[1:])
		if c.sched != nil {
			c.sched.Use(c.now, p...)
			return
		}
		c.sched = NewScheduler(p...)
	case "why":
		fmt.Fprintf(&c.out, "> %s\n", c.sched.Explain())
	case "loaded":
		fmt.Fprintf(&c.out, "> %v\n", c.sched.Overloaded())
	case "sample":
		c.sched.Step(c.now, &Event{Kind: Observe, Sample: sampleOf(t, c.now, words[1:])})
	case "refused":
		fmt.Fprintf(&c.out, "> %s\n", c.sched.Refusal(ID(number(t, words[1]))))
	case "used":
		for _, s := range c.sched.Stats(nil) {
			fmt.Fprintf(&c.out, "> %d %v %v leases %d\n", s.Domain.ID, s.State, s.Used.Busy(), s.Leases)
		}
		fmt.Fprintf(&c.out, "> nobody %v\n", c.sched.Strays().Busy())
	case "asks":
		c.sched.Step(c.now, c.asks(t, words))
	default:
		c.sched.Step(c.now, eventOf(t, words))
	}
}

// asks returns the event of a request that waits at a gate.
func (c *conversation) asks(t *testing.T, words []string) *Event {
	e := &Event{Kind: Head, Domain: Domain{ID: ID(number(t, words[1]))}, Class: Compute}
	if d := length(t, words[2]); d > 0 {
		c.asked++
		e.Request = Request{Seq: c.asked, Predicted: d, Known: true}
	}
	rest := words[3:]
	if len(rest)%2 == 1 { // copy
		e.Class, rest = Copy, rest[1:]
	}
	for ; len(rest) > 1; rest = rest[2:] {
		switch rest[0] {
		case "released":
			e.Request.Release = Time(length(t, rest[1]))
		case "bytes":
			e.Request.Bytes, e.Request.Known = uint64(number(t, rest[1])), false
		case "threads":
			e.Request.Threads, e.Request.Known = uint64(number(t, rest[1])), false
		default:
			t.Fatalf("no request has %q", rest[0])
		}
	}
	return e
}

// wait advances time by d, calling Ready whenever it is due.
func (c *conversation) wait(d time.Duration) {
	end := c.now.Add(d)
	for asked := 0; c.sched.Next() <= end; asked++ {
		if asked > 10_000 {
			c.out.WriteString("> it never rests\n")
			return
		}
		c.now = max(c.now, c.sched.Next())
		c.ready()
	}
	c.now = end
}

func (c *conversation) ready() {
	for _, a := range c.sched.Ready(c.now) {
		fmt.Fprintf(&c.out, "> %v %s\n", time.Duration(c.now), spell(a))
	}
}

func spell(a Action) string {
	to := fmt.Sprint(a.Domain) + [...]string{Compute: " compute", Copy: " copy"}[a.Lease.Class]
	switch {
	case !a.Open:
		return "close " + to
	case a.Lease.Kind == Requests:
		return fmt.Sprintf("open %s for %d requests", to, a.Lease.Amount)
	case a.Lease.Kind == Budget:
		return fmt.Sprintf("open %s for %v", to, time.Duration(a.Lease.Amount))
	case a.Lease.Until == Forever:
		return "open " + to
	default:
		return fmt.Sprintf("open %s until %v", to, time.Duration(a.Lease.Until))
	}
}

func policyOf(t *testing.T, words []string) Policy {
	t.Helper()
	p := policiesOf(t, words)
	if len(p) != 1 {
		t.Fatalf("%q are several policies", words)
	}
	return p[0]
}

func policiesOf(t *testing.T, words []string) []Policy {
	t.Helper()
	name, rest := words[0], words[1:]
	o := Defaults(Production)
	if len(rest) > 0 && rest[0] == "paper" {
		o, rest = Defaults(Paper), rest[1:]
	}
	for ; len(rest) > 1; rest = rest[2:] {
		option(t, &o, rest[0], rest[1])
	}
	p, err := NewAccounts(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// shortNames are the conversations' names of options that differ from the keys.
var shortNames = map[string]string{"debt": "debt_af", "skip": "max_skip", "limit": "reserve_limit"}

func option(t *testing.T, o *Options, what, value string) {
	t.Helper()
	switch what {
	case "tick":
		o.Tick = length(t, value)
		return
	case "cap":
		o.RotationCap = length(t, value)
		return
	case "yield":
		o.IdleYield = length(t, value)
		return
	case "accounts":
		o.Accounts = map[string]Accounts{"sdq": SDQ, "mrq": MRQ}[value]
		return
	}
	key := what
	if long, ok := shortNames[what]; ok {
		key = long
	}
	p := Parameter(key)
	if p == nil {
		t.Fatalf("no option is called %q", what)
	}
	switch p.Kind {
	case Duration:
		o.SetOption(p, int64(length(t, value)))
	case Count:
		o.SetOption(p, int64(number(t, value)))
	case Flag:
		o.SetOption(p, map[string]int64{"on": 1}[value])
	case Word:
		o.SetOption(p, int64(max(slices.Index(p.Words, value), 0)))
	}
}

// sampleOf returns a sample from the words of a line: a domain's part ends with a comma.
func sampleOf(t *testing.T, now Time, words []string) *vcpu.Sample {
	t.Helper()
	s := &vcpu.Sample{At: now, Period: 30 * ms, Quality: vcpu.Exact}
	for part := range strings.SplitSeq(strings.Join(words, " "), ",") {
		words := strings.Fields(part)
		switch words[0] {
		case "none":
			s.Quality = vcpu.Unknown
		case "old":
			s.At -= Time(length(t, words[1]))
		default:
			s.Domains = append(s.Domains, scheduleOf(t, words))
		}
	}
	return s
}

func scheduleOf(t *testing.T, words []string) vcpu.Schedule {
	t.Helper()
	d := vcpu.Schedule{ID: ID(number(t, words[0])), VCPUs: []vcpu.VCPU{{State: vcpu.Blocked}}}
	for rest := words[1:]; len(rest) > 0; {
		switch what := rest[0]; what {
		case "runs":
			d.VCPUs[0].State = vcpu.Running
			rest = rest[1:]
		case "next":
			d.VCPUs[0].State, d.VCPUs[0].Next = vcpu.Runnable, number(t, rest[1])
			rest = rest[2:]
		case "rem":
			d.Remaining = int64(number(t, rest[1]))
			rest = rest[2:]
		default:
			t.Fatalf("a schedule has no %q", what)
		}
	}
	return d
}

func eventOf(t *testing.T, words []string) *Event {
	t.Helper()
	e := &Event{Domain: Domain{ID: ID(number(t, words[1]))}}
	signals := map[string]Signal{"arrives": Arrived, "drains": Drained, "opens": ContextOpened, "closes": ContextClosed}
	switch words[0] {
	case "attach":
		e.Kind = Attach
		rest := words[2:]
		if len(rest)%2 == 1 {
			e.Domain.Credits, rest = vcpu.Credits(number(t, rest[0])), rest[1:]
		}
		for ; len(rest) > 1; rest = rest[2:] {
			if rest[0] == "cpu" {
				e.Domain.CPU = vcpu.Credits(number(t, rest[1]))
				continue
			}
			promise(t, &e.Domain.Promise, rest[0], rest[1])
		}
	case "detach":
		e.Kind = Detach
	case "ends":
		e.Kind, e.Class, e.Used = Charge, Compute, Usage{Compute: length(t, words[2]), Requests: 1}
		if len(words) > 3 {
			e.Class, e.Used = Copy, Usage{Copy: e.Used.Compute, Requests: 1}
		}
	case "uses":
		e.Kind = Charge
		e.Used.Compute = length(t, words[2])
		for i := 3; i+1 < len(words); i += 2 {
			switch d := length(t, words[i+1]); words[i] {
			case "copy":
				e.Used.Copy = d
			case "idle":
				e.Used.Idle = d
			}
		}
	default:
		s, ok := signals[words[0]]
		if !ok {
			t.Fatalf("unknown verb %q", words[0])
		}
		e.Kind, e.Signal = Wake, s
		if len(words) > 2 {
			e.Class = map[string]Class{"compute": Compute, "copy": Copy}[words[2]]
		}
	}
	return e
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func length(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func promise(t *testing.T, p *vcpu.Promise, what, value string) {
	t.Helper()
	switch what {
	case "group":
		p.Group = value
	case "slo":
		p.SLO = number(t, value)
	case "priority":
		p.Priority = number(t, value)
	case "bandwidth":
		p.Bandwidth = number(t, value)
	case "throughput":
		p.Throughput = value == "on"
	case "interactive":
		p.Interactive = value == "on"
	case "deadline":
		p.Deadline = length(t, value)
	case "pe", "ae":
		cost, period, _ := strings.Cut(value, "/")
		p.Reserve.Kind = map[string]vcpu.ReserveKind{"pe": vcpu.Posterior, "ae": vcpu.Apriori}[what]
		p.Reserve.Cost, p.Reserve.Period = length(t, cost), length(t, period)
	case "shared":
		p.Reserve.Shared = value
	case "background":
		p.Reserve.Kind = vcpu.Background
	default:
		t.Fatalf("no promise is called %q", what)
	}
}
