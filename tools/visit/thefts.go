package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"pegasus/backend/control"
)

// theft is an attempt to get more than a half of the device.
type theft struct {
	name      string
	args      []string // of test/programs/thief.c
	rehearsed []string // the same, for the software accelerator; nil: that one would end the other domain's kernels, too
	processes int      // that run it at once, each repeatedly
}

var attempts = []theft{
	{"leaves after long kernels", []string{"wait", "100", "1"}, []string{"wait", "20", "1"}, 2},
	{"exceeds its predicted time", []string{"pile", "20000000", "3"}, []string{"pile", "200000", "3"}, 4},
	{"is ended by the kernel timeout", []string{"wait", "5000", "1"}, nil, 1},
	{"fills memory", []string{"bytes", "4096", "400"}, []string{"bytes", "64", "50"}, 2},
}

// thefts runs each attempt beside a domain of the same credits that always has work waiting.
func thefts(ctx context.Context, v *visit) (any, error) {
	policies := v.policies
	if v.rehearsal {
		policies = policies[:min(2, len(policies))] // none and one more
	}
	var f findings
	for _, p := range policies {
		if p == "none" {
			continue
		}
		for _, a := range attempts {
			if v.rehearsal && a.rehearsed == nil {
				continue
			}
			if err := v.theft(ctx, p, a, &f); err != nil {
				return f, fmt.Errorf("%s, a domain that %s: %w", p, a.name, err)
			}
		}
	}
	return f, nil
}

// balance is the time for which the device was held, and the domains' parts of it.
type balance struct {
	at                  time.Time
	held, victim, thief int64
	uncharged           int64
}

func (d *daemon) balance(ctx context.Context) (b balance, err error) {
	var a control.Accelerator
	if a, err = d.accelerator(ctx); err != nil {
		return b, err
	}
	all, err := d.domains(ctx)
	return balance{time.Now(), a.GPU, all["victim"].GPU, all["thief"].GPU, a.Uncharged}, err
}

func (v *visit) theft(ctx context.Context, policy string, a theft, f *findings) error {
	d, err := v.start(config{
		accelerator: fmt.Sprintf("policy = %q\nkernel_timeout = \"400ms\"\n", policy),
		domains:     "[[domain]]\nname = \"victim\"\n[[domain]]\nname = \"thief\"\n",
	})
	if err != nil {
		return err
	}
	defer d.stop()
	steps, err := v.stepsOf(ctx, d, "victim")
	if err != nil {
		return err
	}
	busy := func(seconds string) (report, error) {
		out, err := v.output(ctx, v.busy(ctx, d, "victim", steps, "--seconds", seconds, "--queue", "30"))
		if err != nil {
			return report{}, err
		}
		return reported(out)
	}
	alone, err := busy(v.size(2, 1))
	if err != nil {
		return err
	}
	inTime, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	args := a.args
	if v.rehearsal {
		args = a.rehearsed
	}
	for range a.processes {
		running.Go(func() {
			for inTime.Err() == nil {
				v.thief(inTime, d, args).Run() // an attempt may end in an error
			}
		})
	}
	if err := d.await(ctx, []sharer{{name: "thief"}}); err != nil {
		return err
	}
	before, err := d.balance(ctx)
	if err != nil {
		return err
	}
	beside, err := busy(v.size(5, 2))
	if ctx.Err() != nil {
		return err
	}
	if err != nil { // a result like others: no kernels
		fmt.Fprintf(v.log, "the program of the other domain failed: %v\n", err)
	}
	after, err := d.balance(ctx)
	if err != nil {
		return err
	}
	if after.uncharged != 0 {
		return fmt.Errorf("%d ns were charged to no domain", after.uncharged)
	}
	elapsed := float64(after.at.Sub(before.at))
	record := func(what string, value float64) {
		f.Figures = append(f.Figures, figure{Name: fmt.Sprintf("%s, a domain that %s: %s", policy, a.name, what), Value: value})
	}
	record("the other domain's kernels, of those that it computes alone", beside.PerSecond/alone.PerSecond)
	record("the other domain's time, of the elapsed", float64(after.victim-before.victim)/elapsed)
	record("its own", float64(after.thief-before.thief)/elapsed)
	return nil
}

func (v *visit) thief(ctx context.Context, d *daemon, args []string) *exec.Cmd {
	return d.guest(ctx, "thief", v.in("programs/thief"), args...)
}
