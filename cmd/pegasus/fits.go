package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// longestKernel is the greatest length of requests that the daemon simulates.
const longestKernel = 10 * time.Second

func fitsCommand(c *call) action {
	accelerator := c.flags.String("accelerator", "", "check only the accelerator `name`")
	plain := c.flags.Bool("no-predict", false, "compute only: simulate nothing")
	kernel := c.flags.Duration("kernel", 0, "length of the new domain's requests, as a `duration`; 1ms")
	demand := c.flags.Float64("demand", 0, "`part` of the time, 0 to 1, that the new domain computes while it is alone; 1")
	c.jsonFlag()
	return c.takes(0, -1, func(operands []string) error {
		switch {
		case *kernel < 0 || *kernel > longestKernel:
			return usagef("--kernel %v: want 0s to %v", *kernel, longestKernel)
		case !(*demand >= 0 && *demand <= 1):
			return usagef("--demand %v: want 0 to 1", *demand)
		}
		settings, err := parseSettings(operands)
		if err != nil {
			return err
		}
		if *accelerator != "" {
			settings["accelerator"] = *accelerator
		}
		q := control.FitParams{Settings: settings, Predict: !*plain, Kernel: int64(*kernel), Demand: *demand}
		answers, err := ask(c, func(daemon *client.Client, ctx context.Context) ([]control.Fit, error) { return daemon.Fits(ctx, q) })
		if err != nil {
			return err
		}
		if c.json {
			err = printJSON(c.out, answers)
		} else {
			for i := range answers {
				c.printFit(&answers[i])
			}
		}
		if err == nil && !slices.ContainsFunc(answers, func(f control.Fit) bool { return f.Fits }) {
			return errors.New("the domain fits on no accelerator")
		}
		return err
	})
}

func (c *call) printFit(f *control.Fit) {
	verdict := "fits"
	if !f.Fits {
		verdict = "does not fit"
	}
	fmt.Fprintf(c.out, "%s (policy %s): %s\n", f.Accelerator, f.Policy, verdict)
	for _, r := range f.Reasons {
		fmt.Fprintln(c.out, "  "+r)
	}
	for _, w := range f.Warnings {
		fmt.Fprintln(c.out, "  warning: "+w)
	}
	t := &table{head: []string{"DOMAIN", ">ENTITLED BEFORE", ">AFTER", ">OBJECTIVE"}}
	if f.Simulated > 0 {
		t.head = append(t.head, ">PREDICTED SHARE", ">PREDICTED WAIT P99")
	}
	for _, d := range append(f.Others[:len(f.Others):len(f.Others)], f.Domain) {
		row := []string{d.Domain, owed(d.Before), owed(d.After), owed(d.Objective)}
		if d.Breaks {
			row[3] += " broken"
		}
		if p := d.Predicted; p != nil {
			row = append(row, percent(p.Share), short(p.WaitP99))
		}
		t.add(row...)
	}
	t.print(c.out)
	if f.Simulated > 0 {
		fmt.Fprintf(c.out, "predicted: simulated %v with the measured demand\n", time.Duration(f.Simulated))
	}
}
