// Package live runs a simulator's scenario for real: a daemon with the software accelerator, worker
// processes, and the programs of the scenario's workloads. Its measurements have the simulator's names, so
// that both can be compared.
//
// An accelerator has one core of the host. All domains compute during the whole measurement: their times of
// coming and going in the scenario are ignored.
package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/policies"
	"pegasus/sim"
)

// patience is the time limit for programs to begin or to end.
const patience = 30 * time.Second

// Stage runs plans, one at a time.
type Stage struct {
	Build  string // folder with bin/pegasusd and bench/
	Traces string // folder for each plan's scheduler trace; "": it isn't kept
}

// Run runs a plan once, from the scenario's From to its Time, and returns the measurements of the plan itself
// ("") and of each domain and group. Times are in milliseconds, parts in percent:
//
//	share, compute, copy        of the time of the accelerator
//	error, error_max            distance of share from the entitled share, in windows
//	part, off, off_max          the same of the time that it was busy
//	rate                        runs per second
//	run_p50, run_p85, run_p99   of runs, from their first call until their end was reported
//	latency_p50, _p85, _p99     the same: where a run is one call, the simulator's latency
//	wait_p50, wait_p99          of requests at the gate
func (s *Stage) Run(ctx context.Context, sc *sim.Scenario, p *sim.Plan) (m sim.Metrics, err error) {
	domains, err := sc.TakingPart(p)
	if err != nil {
		return nil, err
	}
	text, err := configuration(sc, p, domains)
	if err != nil {
		return nil, err
	}
	h, err := s.open(text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	programs, err := h.begin(ctx, sc, domains)
	defer stop(programs)
	if err != nil {
		return nil, err
	}
	length := sc.Time - sc.From
	t, err := h.watch(ctx, sc.From+length+traceLag)
	if err != nil {
		return nil, err
	}
	if t.names, err = h.order(); err != nil {
		return nil, err
	}
	if err := s.keep(t, sc.ID+"-"+p.Name); err != nil {
		return nil, err
	}
	domainStates, err := h.domains()
	if err != nil {
		return nil, err
	}
	reports, err := finish(programs)
	if err != nil {
		return nil, err
	}
	u, err := t.use(sc.From, sc.Window, int(length/sc.Window))
	if err != nil {
		return nil, err
	}
	return measure(domains, u, domainStates, reports), nil
}

// house is the daemon of one plan.
type house struct {
	stage  *Stage
	dir    string
	daemon *exec.Cmd
	api    *client.Client
	log    bytes.Buffer
}

func (s *Stage) open(config string) (*house, error) {
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		return nil, err
	}
	h := &house{stage: s, dir: dir}
	if err := h.start(config); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *house) start(config string) error {
	file := filepath.Join(h.dir, "pegasus.toml")
	if err := errors.Join(os.Chmod(h.dir, 0o755), os.WriteFile(file, []byte(config), 0o644)); err != nil { // workers run as other users
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	h.daemon = exec.Command(filepath.Join(h.stage.Build, "bin/pegasusd"), "--runtime-dir", h.dir, "--config", file, "--ready-fd", "3", "--private", "--linger", "10m")
	h.daemon.Stdout, h.daemon.Stderr = &h.log, &h.log
	h.daemon.ExtraFiles = []*os.File{w}
	err = h.daemon.Start()
	w.Close()
	if err != nil {
		h.daemon = nil
		return fmt.Errorf("%w; `make build` builds it", err)
	}
	if said, _ := bufio.NewReader(r).ReadString('\n'); !strings.Contains(said, "ready") {
		return fmt.Errorf("the daemon did not start with\n%s", config)
	}
	h.api, err = client.Dial(filepath.Join(h.dir, "control.sock"))
	return err
}

// close ends the daemon.
func (h *house) close() error {
	defer os.RemoveAll(h.dir)
	if h.api != nil {
		h.api.Close()
	}
	if h.daemon == nil {
		return nil
	}
	h.daemon.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { h.daemon.Process.Kill() })
	defer late.Stop()
	if err := h.daemon.Wait(); err != nil {
		return fmt.Errorf("the daemon: %w\n%s", err, &h.log)
	}
	return nil
}

func (h *house) domains() (map[string]control.Domain, error) {
	all, err := h.api.Domains(context.Background())
	byName := map[string]control.Domain{}
	for _, d := range all {
		byName[d.Name] = d
	}
	return byName, err
}

// order returns the names of the accelerator's domains in order of attachment.
func (h *house) order() ([]string, error) {
	all, err := h.api.Accelerators(context.Background())
	if err != nil {
		return nil, err
	}
	return all[0].Domains, nil
}

// program is a guest that runs until finish ends it.
type program struct {
	name   string
	domain string
	cmd    *exec.Cmd
	out    bytes.Buffer
	errs   bytes.Buffer
	over   chan struct{} // closed when it has ended,
	err    error         // with this error
}

// said returns the program's error output.
func (p *program) said() string {
	return fmt.Sprintf("%s in %s: %s", p.name, p.domain, &p.errs)
}

// Report is the output of a program of guest/bench at its end.
type Report struct {
	Launches float64 `json:"launches"` // runs
	Seconds  float64 `json:"seconds"`
	RoundP50 float64 `json:"round_p50_ns"`
	RoundP85 float64 `json:"round_p85_ns"`
	RoundP99 float64 `json:"round_p99_ns"`
	Result   string  `json:"result"`
}

// program starts a program in a domain, with the given nice value.
func (h *house) program(domain string, args []string, nice int) (*program, error) {
	p := &program{name: args[0], domain: domain, over: make(chan struct{})}
	all := []string{"-n", strconv.Itoa(nice), filepath.Join(h.stage.Build, "bin/pegasus"), "run", "--runtime-dir", h.dir, "--domain", domain, "--", filepath.Join(h.stage.Build, "bench", args[0]), "--quiet", "--json", "--seconds", "3600"}
	p.cmd = exec.Command("nice", append(all, args[1:]...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; `make build` builds it", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.over)
	}()
	return p, nil
}

// begin starts the programs of all domains, those in the background first, and waits until all compute.
func (h *house) begin(ctx context.Context, sc *sim.Scenario, domains []sim.Domain) (all []*program, err error) {
	for _, background := range []bool{true, false} {
		var names []string
		for i := range domains {
			d := &domains[i]
			if d.Background != background {
				continue
			}
			w, err := sc.Workload(d)
			if err != nil {
				return all, err
			}
			if len(w.Program) == 0 {
				return all, fmt.Errorf("workload %q names no program", d.Workload)
			}
			nice, err := niceness(d)
			if err != nil {
				return all, err
			}
			for range max(d.Threads, 1) {
				p, err := h.program(d.Name, w.Program, nice)
				if err != nil {
					return all, err
				}
				all = append(all, p)
			}
			names = append(names, d.Name)
		}
		if err := h.await(ctx, names, all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// await blocks until these domains use the accelerator. It returns an error if a program ends before.
func (h *house) await(ctx context.Context, names []string, programs []*program) error {
	for end := time.Now().Add(patience); ; {
		domainStates, err := h.domains()
		if err != nil {
			return err
		}
		idle := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return domainStates[n].GPU > 0 })
		if len(idle) == 0 {
			return nil
		}
		for _, p := range programs {
			select {
			case <-p.over:
				return fmt.Errorf("%s ended: %w", p.said(), p.err)
			default:
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("domain %s doesn't compute", strings.Join(idle, ", "))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// traceLag is how much longer than the measured time a trace is received: records are sent ten times a
// second, and a request is in one when it has ended.
const traceLag = 300 * time.Millisecond

// watch records the scheduler's inputs for the given time: all of them if the trace is kept, else only the
// charges, because writing everything takes time of its own.
func (h *house) watch(ctx context.Context, d time.Duration) (*receivedTrace, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	t := &receivedTrace{}
	err := h.api.Trace(ctx, control.TraceParams{Used: h.stage.Traces == ""}, func(record json.RawMessage) error {
		t.lines = append(t.lines, slices.Clone(record)) // decoded later, when that disturbs no measurement
		return nil
	})
	if ctx.Err() == context.DeadlineExceeded {
		err = nil
	}
	return t, err
}

// finish lets the programs end, those in the background last, and returns each domain's reports. A program
// that fails, or has a wrong result, is an error.
func finish(all []*program) (map[string][]Report, error) {
	reports := map[string][]Report{}
	for _, p := range slices.Backward(all) {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	var errs []error
	for _, p := range all {
		late := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
		<-p.over
		late.Stop()
		var r Report
		err := p.err
		if err == nil {
			err = json.Unmarshal(p.out.Bytes(), &r)
		}
		if err == nil && r.Result != "right" {
			err = fmt.Errorf("its result is %s", r.Result)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.said(), err))
		}
		reports[p.domain] = append(reports[p.domain], r)
	}
	return reports, errors.Join(errs...)
}

// stop kills the remaining programs.
func stop(all []*program) {
	for _, p := range all {
		p.cmd.Process.Kill() // does nothing to one that has ended
		<-p.over
	}
}

// keep writes a trace in the format of `pegasus trace`.
func (s *Stage) keep(t *receivedTrace, name string) error {
	if s.Traces == "" {
		return nil
	}
	if err := os.MkdirAll(s.Traces, 0o777); err != nil {
		return err
	}
	text := append(bytes.Join(lines(t.lines), []byte("\n")), '\n')
	return os.WriteFile(filepath.Join(s.Traces, name+".trace"), text, 0o666)
}

func lines(all []json.RawMessage) [][]byte {
	out := make([][]byte, len(all))
	for i, l := range all {
		out[i] = l
	}
	return out
}

// receivedTrace is a trace as received.
type receivedTrace struct {
	lines []json.RawMessage
	names []string // of the domains, in the order of their ids
}

// used is engine time in windows, [window][domain].
type used struct {
	window        time.Duration
	compute, copy []map[string]time.Duration
}

// use sums up the charges. A charge is reported when a request has ended: the engine was held until then.
func (t *receivedTrace) use(from, window time.Duration, windows int) (*used, error) {
	u := &used{window: window}
	for range windows {
		u.compute = append(u.compute, map[string]time.Duration{})
		u.copy = append(u.copy, map[string]time.Duration{})
	}
	var begin policies.Time
	names := map[policies.ID]string{}
	for i, line := range t.lines {
		var r policies.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		if i == 0 {
			begin = r.At.Add(from)
		}
		switch e := r.Event; {
		case e == nil:
		case e.Kind == policies.Attach && names[e.Domain.ID] == "":
			if len(names) == len(t.names) {
				return nil, errors.New("a domain came while shares were measured")
			}
			names[e.Domain.ID] = t.names[len(names)]
		case e.Kind == policies.Charge:
			book(u.compute, names[e.Domain.ID], r.At.Sub(begin), e.Used.Compute, window)
			book(u.copy, names[e.Domain.ID], r.At.Sub(begin), e.Used.Copy, window)
		}
	}
	return u, nil
}

// book adds a time that ended at an instant to the windows that it overlaps.
func book(to []map[string]time.Duration, name string, end, d, window time.Duration) {
	for i := range to {
		low := max(end-d, time.Duration(i)*window)
		high := min(end, time.Duration(i+1)*window)
		if high > low {
			to[i][name] += high - low
		}
	}
}
