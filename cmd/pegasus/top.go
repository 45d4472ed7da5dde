package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
	"pegasus/cmd/pegasus/top"
)

// Bounds of the time between two polls of top.
const (
	leastInterval = 100 * time.Millisecond
	mostInterval  = time.Hour
)

// showTop is `pegasus top`.
func showTop(c *call) action {
	c.jsonFlag()
	interval := c.flags.Duration("interval", time.Second, "the `duration` between two polls of the daemon")
	once := c.flags.Bool("once", false, "print the figures once, as text")
	return c.takes(0, 0, func([]string) error {
		if *interval < leastInterval || *interval > mostInterval {
			return usagef("--interval %v: want %v to %v", *interval, leastInterval, mostInterval)
		}
		daemon, err := c.dial()
		if err != nil {
			return err
		}
		defer daemon.Close() // it connects again when the next daemon runs
		opt := top.Options{Interval: *interval, Objective: func(d control.Domain) string { return d.Objective.State }}
		if !*once && !c.json {
			if !isTerminal(c.out) || !readsTerminal(c.in) {
				return errors.New("standard input and output are no terminal: --once prints the figures as text, --json as JSON")
			}
			return top.Run(daemon, opt, c.in, os.Stdout)
		}
		r, err := top.Once(context.Background(), daemon, opt.Interval)
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, r)
		}
		accelerators, domains := &table{}, &table{}
		accelerators.head, accelerators.rows = r.AcceleratorTable()
		domains.head, domains.rows = r.Table(opt.Objective)
		accelerators.print(c.out)
		fmt.Fprintln(c.out)
		domains.print(c.out)
		return nil
	})
}

// readsTerminal reports whether r is a terminal.
func readsTerminal(r io.Reader) bool {
	file, ok := r.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
