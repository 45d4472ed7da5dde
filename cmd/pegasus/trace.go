package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"pegasus/backend/control"
	"pegasus/policies"
	"pegasus/policies/coordination"
)

func trace(c *call) action {
	accelerator := c.flags.String("accelerator", "", "trace the scheduler of the accelerator `name`; without it: of the only one")
	seconds := c.flags.Float64("seconds", 0, "end after `n` seconds; 0: when interrupted")
	path := c.flags.String("out", "-", "write to `file`; -: standard output")
	cpus := c.flags.Bool("cpus", false, "write when vCPUs ran, too, for pegasus sim coordination")
	picture := c.flags.String("perfetto", "", "write a time line of all accelerators' engines and gates and of the CPUs to `file` instead")
	return c.takes(0, 0, func([]string) error {
		switch {
		case !(*seconds >= 0 && *seconds < 1e6):
			return usagef("--seconds %g: must be from 0 to 1000000", *seconds)
		case *picture != "" && (*accelerator != "" || *path != "-"):
			return usagef("--perfetto shows all accelerators, in a file of its own: leave out --accelerator and --out")
		case *picture != "" && *cpus:
			return usagef("--perfetto shows when vCPUs ran anyway: leave out --cpus")
		case *picture != "":
			return timeline(c, *picture, *seconds)
		}
		to := c.out
		var file *os.File
		if *path != "-" {
			var err error
			if file, err = os.OpenFile(*path, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
				return err
			}
			defer file.Close()
			to = file
		}
		r := &recorder{out: bufio.NewWriter(to), file: file}
		err := r.record(c, *accelerator, *cpus, *seconds) // the daemon may have ended meanwhile
		if err := errors.Join(err, r.out.Flush()); err != nil {
			return err
		}
		switch {
		case r.records == 0:
			fmt.Fprintln(c.err, "warning: nothing was recorded: the trace can't be played again")
		case r.work == 0 && !*cpus:
			fmt.Fprintln(c.err, "warning: nothing was recorded but turns without requests: no domain used the accelerator")
		}
		if r.records > 0 && file != nil {
			fmt.Fprintf(c.err, "%s in %s\n", control.Count(r.records, "record"), *path)
		}
		return nil
	})
}

// recorder writes the inputs and decisions of a scheduler and, beside them, when vCPUs ran.
type recorder struct {
	mu      sync.Mutex
	out     *bufio.Writer
	file    *os.File // nil: standard output. The first record replaces the earlier content
	records int
	work    int  // records of requests and of accelerator time
	begun   bool // a trace begins with a choice: records before it are not written
}

func (r *recorder) record(c *call, accelerator string, cpus bool, seconds float64) error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close()
	ended, begin, stop := until(seconds)
	defer stop()
	both, cancel := context.WithCancel(ended) // one is of no use without the other
	defer cancel()
	failed := make(chan error, 1)
	if cpus {
		go func() {
			failed <- daemon.Timeline(both, r.run)
			cancel()
		}()
	}
	err = daemon.Trace(both, control.TraceParams{Accelerator: accelerator}, func(record json.RawMessage) error {
		begin() // the first record, a choice, comes when the recording begins
		return r.write(record, true)
	})
	if cpus {
		cancel()
		if other := <-failed; other != nil && !errors.Is(other, context.Canceled) {
			err = other
		}
	}
	if ended.Err() != nil {
		return nil
	}
	return err
}

// run writes a span of the timeline.
func (r *recorder) run(s control.Span) error {
	if s.Line != control.LineCPU {
		return nil
	}
	line, err := json.Marshal(runLine{policies.Time(s.From), coordination.Run{
		Domain: s.Domain, VCPU: s.VCPU, CPU: s.CPU, From: policies.Time(s.From), To: policies.Time(s.To)}})
	if err != nil {
		return err
	}
	return r.write(line, false)
}

// runLine is a coordination.Line of a run.
type runLine struct {
	At  policies.Time    `json:"at"`
	Run coordination.Run `json:"run"`
}

// isWork reports whether a record is a request's arrival or end, or a charge.
func isWork(line []byte) bool {
	var e struct {
		Event *struct{ Kind string }
	}
	return json.Unmarshal(line, &e) == nil && e.Event != nil && (e.Event.Kind == "wake" || e.Event.Kind == "charge")
}

func (r *recorder) write(line []byte, record bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun = r.begun || record; !r.begun {
		return nil
	}
	if r.records == 0 && r.file != nil {
		if info, err := r.file.Stat(); err == nil && info.Mode().IsRegular() {
			if err := r.file.Truncate(0); err != nil {
				return err
			}
		}
	}
	r.records++
	if record && isWork(line) {
		r.work++
	}
	r.out.Write(line)
	return r.out.WriteByte('\n')
}

// judgeCoordination is `pegasus sim coordination`: the coordination of an accelerator and the CPUs.
func judgeCoordination(c *call, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	all, err := coordination.Read(bufio.NewReader(file))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	v := coordination.Judge(all)
	if c.json {
		return printJSON(c.out, []coordination.Verdict{v})
	}
	if v.Decisions == 0 {
		return fmt.Errorf("%s: nothing to judge: no decision between domains with recorded vCPU runs; record with pegasus trace --cpus --out FILE while several domains compute", path)
	}
	printVerdict(c.out, &v)
	return nil
}

func printVerdict(out io.Writer, v *coordination.Verdict) {
	fmt.Fprintf(out, "%s: %s between domains with work\n\n", v.Policy, control.Count(v.Decisions, "decision"))
	t := &table{head: []string{"A VCPU RAN", ">OF THE CHOSEN", ">BY CHANCE", ">AT BEST"}}
	for _, row := range []struct {
		when string
		p    coordination.Part
	}{{"when it was chosen", v.Now}, {"in its window", v.Window}} {
		t.add(row.when, percent(row.p.Chosen), percent(row.p.Chance), percent(row.p.Best))
	}
	t.print(out)
	if v.Preferred.Times > 0 {
		fmt.Fprintln(out)
		t = &table{head: []string{"OF THOSE WITH WORK", ">TIMES", ">A VCPU RAN"}}
		for _, row := range []struct {
			who string
			r   coordination.Rivals
		}{{"boosted, for their vCPUs run or will", v.Preferred}, {"  and chosen", v.Taken}, {"others", v.Others}} {
			t.add(row.who, fmt.Sprint(row.r.Times), percent(row.r.Ran))
		}
		t.print(out)
	}
	if v.Looks > 0 {
		fmt.Fprintf(out, "%s of %d looks were right; what a decision goes by is %s old\n", percent(v.Right), v.Looks, short(int64(v.Age)))
	}
	fmt.Fprintln(out)
	t = &table{head: []string{"DOMAIN", ">CHOSEN", ">RAN THEN", ">CPU TIME"}}
	for _, d := range v.Domains {
		t.add(d.Domain, fmt.Sprint(d.Chosen), percent(float64(d.Ran)/float64(max(d.Chosen, 1))), short(int64(d.CPU)))
	}
	t.print(out)
}
