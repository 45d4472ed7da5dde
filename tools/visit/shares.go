package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// sharer is a domain that always has work waiting.
type sharer struct {
	name    string
	credits int
}

func shares(ctx context.Context, v *visit) (any, error) {
	f := findings{Other: "of all credits"}
	for _, domains := range [][]sharer{
		{{"one", 256}, {"three", 768}},
		{{"one", 128}, {"two", 256}, {"four", 512}, {"eight", 1024}},
	} {
		for _, p := range v.policies {
			if err := v.share(ctx, p, domains, &f); err != nil {
				return f, fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	return f, nil
}

// busy returns a program that keeps the device busy with kernels of that many steps (see stepsOf), until it
// is stopped.
func (v *visit) busy(ctx context.Context, d *daemon, domain string, steps float64, args ...string) *exec.Cmd {
	all := append([]string{"--size", v.size(1056, 16), "--steps", fmt.Sprint(math.Ceil(steps)), "--no-check", "--quiet", "--json"}, args...)
	return d.guest(ctx, domain, v.in("bench/busy"), all...)
}

// stepsOf returns the steps for which busy's kernel takes a millisecond while no other program computes.
func (v *visit) stepsOf(ctx context.Context, d *daemon, domain string) (float64, error) {
	const long = 5
	out, err := v.output(ctx, d.guest(ctx, domain, v.in("bench/busy"), "--size", v.size(1056, 16), "--kernel-ms", fmt.Sprint(long), "--iterations", "3", "--no-check", "--quiet", "--json"))
	if err != nil {
		return 0, err
	}
	r, err := reported(out)
	return r.Steps / long, err
}

// share makes domains compete under a policy, and records each domain's part of the time beside its part of
// the credits.
func (v *visit) share(ctx context.Context, policy string, domains []sharer, f *findings) error {
	var tables strings.Builder
	credits := 0
	for _, s := range domains {
		fmt.Fprintf(&tables, "[[domain]]\nname = %q\ncredits = %d\n", s.name, s.credits)
		credits += s.credits
	}
	d, err := v.start(config{accelerator: fmt.Sprintf("policy = %q\n", policy), domains: tables.String()})
	if err != nil {
		return err
	}
	defer d.stop()
	steps, err := v.stepsOf(ctx, d, domains[0].name)
	if err != nil {
		return err
	}
	inTime, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range domains {
		cmd := v.busy(inTime, d, s.name, steps, "--seconds", "3600", "--queue", "30")
		if err := cmd.Start(); err != nil {
			return err
		}
		defer cmd.Wait()
		defer cancel() // before it is waited for
	}
	length := 6 * time.Second
	if v.rehearsal {
		length = 1500 * time.Millisecond
	}
	if err := d.await(ctx, domains); err != nil {
		return err
	}
	used, err := d.used(ctx, domains, length)
	if err != nil {
		return err
	}
	var sum int64
	for _, ns := range used {
		sum += ns
	}
	for i, s := range domains {
		wanted := float64(s.credits) / float64(credits)
		f.Figures = append(f.Figures, figure{Name: fmt.Sprintf("%s, %d domains: %s", policy, len(domains), s.name), Value: float64(used[i]) / float64(max(sum, 1)), Other: &wanted})
	}
	return nil
}

// await blocks until all domains compute.
func (d *daemon) await(ctx context.Context, domains []sharer) error {
	for {
		now, err := d.domains(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(domains, func(s sharer) bool { return now[s.name].Processes == 0 || now[s.name].Compute == 0 }) {
			return sleep(ctx, time.Second)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// used returns the time that each domain computed within a period.
func (d *daemon) used(ctx context.Context, domains []sharer, length time.Duration) (all []int64, err error) {
	before, err := d.domains(ctx)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, length); err != nil {
		return nil, err
	}
	after, err := d.domains(ctx)
	for _, s := range domains {
		all = append(all, after[s.name].Compute-before[s.name].Compute)
	}
	return all, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("it took too long")
	case <-time.After(d):
		return nil
	}
}

// latency measures the duration of requests beside a domain with long kernels.
func latency(ctx context.Context, v *visit) (any, error) {
	var f findings
	for _, p := range append([]string{"alone"}, v.policies...) {
		if err := v.latency(ctx, p, &f); err != nil {
			return f, fmt.Errorf("%s: %w", p, err)
		}
	}
	return f, nil
}

func (v *visit) latency(ctx context.Context, policy string, f *findings) error {
	used := policy
	if policy == "alone" {
		used = "none"
	}
	d, err := v.start(config{accelerator: fmt.Sprintf("policy = %q\n", used), domains: "[[domain]]\nname = \"requests\"\n[[domain]]\nname = \"hog\"\n"})
	if err != nil {
		return err
	}
	defer d.stop()
	steps, err := v.stepsOf(ctx, d, "requests")
	if err != nil {
		return err
	}
	inTime, cancel := context.WithCancel(ctx)
	defer cancel()
	if policy != "alone" {
		hog := v.busy(inTime, d, "hog", 25*steps, "--seconds", "3600", "--queue", "2")
		if err := hog.Start(); err != nil {
			return err
		}
		defer hog.Wait()
		defer cancel()
		if err := d.await(ctx, []sharer{{name: "hog"}}); err != nil {
			return err
		}
	}
	out, err := v.output(ctx, v.busy(ctx, d, "requests", steps, "--seconds", v.size(6, 2), "--pause-ms", "9"))
	if err != nil {
		return err
	}
	r, err := reported(out)
	if err != nil {
		return err
	}
	f.Figures = append(f.Figures, figure{Name: policy + ", p50", Unit: "ms", Value: r.P50 / 1e6}, figure{Name: policy + ", p99", Unit: "ms", Value: r.P99 / 1e6})
	return nil
}
