package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/backend/pidfd"
	"pegasus/cmd/pegasus/top"
	"pegasus/policies"
	"pegasus/vcpu"
)

// A daemon with many domains, of which half are idle and the others compute for a moment once a second. All
// measurements are made without and with watchers, in an order in which slow drift cancels out.
const (
	watchedAccelerators = 4
	watchedDomains      = 200
	watchRounds         = 3
	watchedFor          = 5 * time.Second
)

var (
	watchOrder = []bool{false, true, true, false}
	watchNames = map[bool]string{false: "no watcher", true: "three watchers"}
)

// watching measures the processor time of a daemon with many domains, without watchers and beside three: `pegasus
// top`, the page's stream, and a scrape of the metrics each second. Then it measures how late turns end while two of
// the domains compete.
func watching(ctx context.Context, stderr io.Writer) (all []Figure, err error) {
	w, err := startWatched(ctx, stderr)
	if err != nil {
		return nil, err
	}
	defer w.stop()
	if err := w.enter(ctx); err != nil {
		return nil, err
	}
	var scrapes []time.Duration
	used := map[bool]time.Duration{}
	err = watchInTurn(func(yes bool) error {
		took, err := w.beside(ctx, yes, func(context.Context) error {
			before, err := pidfd.CPUTime(w.daemon.Process.Pid)
			if err != nil {
				return err
			}
			time.Sleep(watchedFor)
			after, err := pidfd.CPUTime(w.daemon.Process.Pid)
			used[yes] += time.Duration(after - before)
			return err
		})
		scrapes = append(scrapes, took...)
		return err
	})
	if err != nil {
		return nil, err
	}
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / (2 * watchRounds * watchedFor.Seconds()) }
	for _, yes := range watchOrder[:2] {
		all = append(all, Figure{Name: fmt.Sprintf("daemon with %d domains, %s", watchedDomains, watchNames[yes]), Value: percent(used[yes]), Unit: "% of a core"})
	}
	all = append(all, Figure{Name: "three watchers of the daemon", Value: percent(used[true] - used[false]), Unit: "% of a core"})
	all = append(all, quantiles("scrape beside other watchers", scrapes, time.Millisecond, "ms")...)

	if err := w.compete(ctx); err != nil {
		return nil, err
	}
	late := map[bool][]time.Duration{}
	err = watchInTurn(func(yes bool) error {
		_, err := w.beside(ctx, yes, func(ctx context.Context) error {
			more, err := w.lateness(ctx)
			late[yes] = append(late[yes], more...)
			return err
		})
		return err
	})
	for _, yes := range watchOrder[:2] {
		all = append(all, quantiles("end of a turn after its time, "+watchNames[yes], late[yes], time.Microsecond, "µs")...)
	}
	return all, err
}

// watchInTurn measures in each round twice without and twice with watchers.
func watchInTurn(measure func(watchers bool) error) error {
	for range watchRounds {
		for _, yes := range watchOrder {
			if err := measure(yes); err != nil {
				return fmt.Errorf("%s: %w", watchNames[yes], err)
			}
		}
	}
	return nil
}

// quantiles returns the number of durations and their percentiles.
func quantiles(name string, all []time.Duration, unit time.Duration, unitName string) []Figure {
	slices.Sort(all)
	figures := []Figure{{Name: name + ", number", Value: float64(len(all)), Unit: "count"}}
	for _, p := range []int{50, 95, 99} {
		if n := len(all); n > 0 {
			figures = append(figures, Figure{Name: fmt.Sprintf("%s, p%d", name, p), Value: float64(all[n*p/100]) / float64(unit), Unit: unitName})
		}
	}
	return figures
}

// watched is a private daemon with its guests.
type watched struct {
	*house
	stderr io.Writer
	daemon *exec.Cmd
	guests []*exec.Cmd
}

func startWatched(ctx context.Context, stderr io.Writer) (*watched, error) {
	h, err := newHouse()
	if err != nil {
		return nil, err
	}
	text := "[daemon]\nlog_level = \"warn\"\n"
	for i := range watchedAccelerators {
		text += fmt.Sprintf("[[accelerator]]\nname = \"soft%d\"\ntype = \"soft\"\nmemory = \"1GiB\"\n", i)
	}
	config := filepath.Join(h.dir, "pegasus.toml")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	r, ready, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	w := &watched{house: h, stderr: stderr}
	w.daemon = exec.CommandContext(ctx, built("bin/pegasusd"), "--private", "--linger", "10m", "--runtime-dir", h.dir, "--config", config, "--ready-fd", "3")
	w.daemon.Stderr, w.daemon.ExtraFiles = stderr, []*os.File{ready}
	err = w.daemon.Start()
	ready.Close()
	if err != nil {
		return nil, err
	}
	if said, _ := bufio.NewReader(r).ReadString('\n'); said != "ready\n" {
		w.stop()
		return nil, fmt.Errorf("pegasusd: %s", strings.TrimSpace(said))
	}
	return w, nil
}

// stop ends the guests and the daemon.
func (w *watched) stop() {
	for _, g := range w.guests {
		g.Process.Kill()
		g.Wait()
	}
	w.daemon.Process.Signal(syscall.SIGTERM)
	w.daemon.Wait()
	w.close()
}

// start starts a guest in a domain.
func (w *watched) start(ctx context.Context, domain, program string, args ...string) error {
	all := append([]string{"run", "--domain", domain, "--runtime-dir", w.dir, "--", built(program)}, args...)
	cmd := exec.CommandContext(ctx, built("bin/pegasus"), all...)
	cmd.Stderr = w.stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	w.guests = append(w.guests, cmd)
	return nil
}

// enter starts a guest in each domain, a few at a time, and blocks until all have used an accelerator.
func (w *watched) enter(ctx context.Context) error {
	for i := range watchedDomains {
		args := []string{"bench/calls", "--idle", "3600"}
		if i%2 == 0 {
			args = []string{"bench/busy", "--seconds", "3600", "--pause-ms", "1000", "--size", "1", "--steps", "1000", "--quiet", "--no-check"}
		}
		if err := w.start(ctx, fmt.Sprintf("domain-%03d", i), args[0], args[1:]...); err != nil {
			return err
		}
		if i%4 == 3 {
			if err := w.await(ctx, i+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// await blocks until n domains have used an accelerator.
func (w *watched) await(ctx context.Context, n int) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all, err := w.domains(ctx, func(d control.Domain) bool { return d.Calls > 0 })
		if err != nil || len(all) >= n {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d domains have used an accelerator", len(all), n)
		}
	}
}

// domains returns the domains for which a condition holds.
func (w *watched) domains(ctx context.Context, holds func(control.Domain) bool) ([]control.Domain, error) {
	daemon, err := w.dial()
	if err != nil {
		return nil, err
	}
	defer daemon.Close()
	all, err := daemon.Domains(ctx)
	return slices.DeleteFunc(all, func(d control.Domain) bool { return !holds(d) }), err
}

func (w *watched) socket() string { return filepath.Join(w.dir, control.SocketName) }

func (w *watched) dial() (*client.Client, error) { return client.Dial(w.socket()) }

// beside calls f, beside watchers if there are to be any, and returns the times of their scrapes.
func (w *watched) beside(ctx context.Context, watchers bool, f func(context.Context) error) (scrapes []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tasks sync.WaitGroup
	var failures [3]error
	if watchers {
		daemon, err := w.dial()
		if err != nil {
			return nil, err
		}
		defer daemon.Close()
		tasks.Go(func() {
			failures[0] = eachSecond(ctx, func() error { _, err := top.Take(ctx, daemon); return err })
		})
		tasks.Go(func() {
			if err := daemon.Live(ctx, func(control.Live) error { return nil }); ctx.Err() == nil {
				failures[1] = err
			}
		})
		scraper := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", w.socket())
		}}}
		defer scraper.CloseIdleConnections()
		tasks.Go(func() {
			time.Sleep(time.Second / 2) // programs start at different times, so their requests rarely coincide
			failures[2] = eachSecond(ctx, func() error {
				start := time.Now()
				err := scrape(ctx, scraper)
				scrapes = append(scrapes, time.Since(start))
				return err
			})
		})
	}
	time.Sleep(time.Second / 2) // the first answers are longer
	err = f(ctx)
	cancel()
	tasks.Wait()
	return scrapes, errors.Join(append(failures[:], err)...)
}

// eachSecond calls f each second until ctx ends.
func eachSecond(ctx context.Context, f func() error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := f(); err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// scrape reads the metrics with the headers of Prometheus.
func scrape(ctx context.Context, by *http.Client) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://pegasus/metrics", nil)
	if err != nil {
		return err
	}
	q.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1")
	q.Header.Set("Accept-Encoding", "gzip")
	resp, err := by.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New("scrape: " + resp.Status)
	}
	return nil
}

// compete starts two programs that keep the first accelerator busy.
func (w *watched) compete(ctx context.Context) error {
	all, err := w.domains(ctx, func(d control.Domain) bool { return d.Accelerator == "soft0" })
	if err != nil {
		return err
	}
	for _, d := range all[:2] {
		if err := w.start(ctx, d.Name, "bench/busy", "--seconds", "3600", "--size", "4", "--steps", "1000", "--queue", "4", "--quiet", "--no-check"); err != nil {
			return err
		}
	}
	return nil
}

// lateness returns by how much turns on the first accelerator ended after their time, in watchedFor.
func (w *watched) lateness(ctx context.Context) (late []time.Duration, err error) {
	daemon, err := w.dial()
	if err != nil {
		return nil, err
	}
	defer daemon.Close()
	ctx, cancel := context.WithTimeout(ctx, watchedFor)
	defer cancel()
	until := map[vcpu.ID]vcpu.Time{}
	err = daemon.Trace(ctx, control.TraceParams{Accelerator: "soft0"}, func(line json.RawMessage) error {
		var r policies.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		for _, a := range r.Actions {
			if end, ok := until[a.Domain]; ok && r.At >= end {
				late = append(late, r.At.Sub(end))
			}
			delete(until, a.Domain)
			if a.Open && a.Lease.Until != vcpu.Forever {
				until[a.Domain] = a.Lease.Until
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		err = nil
	}
	return late, err
}
