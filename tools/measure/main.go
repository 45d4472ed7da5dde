// Measure runs the benchmarks and writes the results as a table on stdout and as JSON into a file. `make
// bench` calls it, from the top of the source tree and after the build.
//
// Driver calls and copies are measured by build/bench/calls as a process guest of a private daemon, beside
// unix sockets, futexes and memcpy in the same run; scheduling by build/bench/busy under a policy and without
// one, and by the benchmarks of the Go packages. Kernels run in the software accelerator's engine, as C that
// is made of the same PTX, and as OpenCL C; first launches and a filter of ffmpeg run as guests. Nothing
// fails for being slow: the table marks the figures that miss their targets.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"text/tabwriter"

	"pegasus/accel/soft/lane"
)

// Figure is one measured value. Peer is the cost of the alternative, and ratio is value over peer.
type Figure struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit"`
	Peer  *float64 `json:"peer,omitempty"`
	Ratio *float64 `json:"ratio,omitempty"`
}

func main() {
	out := flag.String("o", "build/bench.json", "`file` to write the figures to")
	only := flag.String("only", "", "measure only the parts whose description contains this `text`")
	engine := flag.Bool("engine", false, "only print the engine's times as JSON: for this program itself, which starts itself so")
	flag.Parse()
	if err := lane.UseEngine(os.Getenv(lane.EngineVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
	if *engine {
		if err := printEngineTimes(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "measure:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *only, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func printEngineTimes(w io.Writer) error {
	all, err := engineTimes()
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(all)
}

func run(ctx context.Context, out, only string, stdout, stderr io.Writer) error {
	var all []Figure
	for _, part := range []struct {
		what    string
		measure func(context.Context, io.Writer) ([]Figure, error)
	}{
		{"the machine", machine},
		{"driver calls and copies", calls},
		{"copies on one processor", copiesOnOne},
		{"idle programs", idle},
		{"watchers of a daemon with many domains", watching},
		{"scheduling without contention", overhead},
		{"scheduling decisions", decisions},
		{"kernels", kernels},
		{"kernels with fewer vector instructions", withoutVectors},
		{"kernels with the compiler", withCompiler},
		{"kernels on two cores", twoCores},
		{"first launches", firstLaunches},
		{"a large module", largeModule},
		{"a video filter", videoFilter},
	} {
		if !strings.Contains(part.what, only) {
			continue
		}
		fmt.Fprintf(stderr, "measuring %s…\n", part.what)
		figures, err := part.measure(ctx, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
		all = append(all, figures...)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return table(stdout, all)
}

// decisions runs the benchmarks of the policies.
func decisions(ctx context.Context, stderr io.Writer) ([]Figure, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "Decision", "-benchtime", "200ms", "./policies")
	cmd.Stderr = stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return parseDecisions(string(text))
}

func table(w io.Writer, all []Figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tvalue\tunit\tpeer\tratio\ttarget\t")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%.4g\t%s\t%s\t%s\t%s\t\n", f.Name, f.Value, f.Unit, optional(f.Peer), optional(f.Ratio), verdict(f))
	}
	return t.Flush()
}

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%.3g", *v)
}
