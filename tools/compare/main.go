// Compare runs scenarios twice: in the simulator, and for real on the software accelerator, with a daemon,
// workers and programs that check their results. It prints the predictions beside the measurements. `make
// policies-e2e` calls it, from the top of the source tree and after the build.
//
// Before that it measures every program by itself, and the simulator's prediction uses the program's times on
// this machine, not those of the scenario.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"pegasus/sim"
	"pegasus/tools/compare/internal/live"
)

// settings are the command's flags.
type settings struct {
	stage live.Stage
	trial time.Duration // time for measuring each program by itself
	times int           // runs of each plan
	seeds int           // of the prediction
}

func main() {
	s := settings{stage: live.Stage{Build: cmp.Or(os.Getenv("PEGASUS_BUILD"), "build")}}
	asJSON := flag.Bool("json", false, "print JSON")
	out := flag.String("o", "", "write JSON to this `file` too")
	flag.DurationVar(&s.trial, "trial", 2*time.Second, "try out each program by itself for so `long`")
	flag.IntVar(&s.times, "times", 1, "run each plan `n` times; the table shows the means")
	flag.IntVar(&s.seeds, "seeds", 5, "predict with `n` seeds")
	flag.StringVar(&s.stage.Traces, "traces", "", "keep the traces of the schedulers in this `folder`, for pegasus sim replay")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: compare [flags] SCENARIO...\nRuns scenarios (files, or ids of the simulator's whose workloads name programs) in the simulator and for real.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || s.times < 1 || s.seeds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, err := run(ctx, &s, flag.Args(), *out, *asJSON, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "compare: %d rows fail for real\n", failed)
		os.Exit(1)
	}
}

// run compares scenarios and returns how many rows fail for real.
func run(ctx context.Context, s *settings, names []string, out string, asJSON bool, stdout, stderr io.Writer) (failed int, err error) {
	var all []*Comparison
	for _, name := range names {
		sc, err := sim.Load(name)
		if err != nil {
			return 0, err
		}
		c, err := s.compare(ctx, sc, stderr)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", sc.ID, err)
		}
		all = append(all, c)
		failed += c.failed()
		if !asJSON {
			if err := c.print(stdout); err != nil {
				return 0, err
			}
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return 0, err
	}
	text = append(text, '\n')
	if out != "" {
		err = os.WriteFile(out, text, 0o644)
	}
	if asJSON {
		_, printed := stdout.Write(text)
		err = errors.Join(err, printed)
	}
	return failed, err
}

// compare predicts a scenario's results and runs it.
func (s *settings) compare(ctx context.Context, sc *sim.Scenario, stderr io.Writer) (*Comparison, error) {
	fmt.Fprintf(stderr, "%s: trying out the programs by themselves…\n", sc.ID)
	here, alone, err := s.stage.Calibrate(ctx, sc, s.trial)
	if err != nil {
		return nil, err
	}
	foretold, err := sim.Judge(here, 1, s.seeds, nil)
	if err != nil {
		return nil, fmt.Errorf("prediction: %w", err)
	}
	c := &Comparison{Scenario: sc.ID, Title: sc.Title, Workloads: alone, scenario: sc}
	var runs []map[string]sim.Metrics
	for i := range s.times {
		measured := map[string]sim.Metrics{}
		for k := range sc.Plans {
			p := &sc.Plans[k]
			fmt.Fprintf(stderr, "%s: running %s, %d of %d, for %v…\n", sc.ID, p.Name, i+1, s.times, sc.Time)
			if measured[p.Name], err = s.stage.Run(ctx, here, p); err != nil {
				return nil, fmt.Errorf("plan %s: %w", p.Name, err)
			}
		}
		runs = append(runs, measured)
	}
	c.fill(foretold, runs)
	return c, nil
}
