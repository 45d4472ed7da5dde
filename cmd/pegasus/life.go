package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// leaseFlags are the flags that name a lease and its term.
type leaseFlags struct {
	holder string
	term   time.Duration
}

func (f *leaseFlags) add(c *call) {
	c.flags.StringVar(&f.holder, "holder", "", "lease the domain to the holder `id`, such as a pod's, instead of to this user")
}

func (f *leaseFlags) addTerm(c *call) {
	f.add(c)
	c.flags.DurationVar(&f.term, "expires", 0, "let the lease expire after a `duration`, such as 10m, unless it is renewed")
}

func create(c *call) action {
	var f leaseFlags
	f.addTerm(c)
	c.jsonFlag()
	return c.takes(1, -1, func(operands []string) error {
		settings, err := parseSettings(operands[1:])
		if err != nil {
			return err
		}
		d, err := ask(c, func(daemon *client.Client, ctx context.Context) (control.Domain, error) {
			return daemon.Create(ctx, control.CreateParams{Domain: operands[0], Settings: settings, Holder: f.holder, Expires: int64(f.term)})
		})
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, d)
		}
		fmt.Fprintln(c.out, d.Socket)
		return nil
	})
}

func renew(c *call) action {
	var f leaseFlags
	f.addTerm(c)
	c.jsonFlag()
	return c.takes(1, 1, func(operands []string) error {
		d, err := ask(c, func(daemon *client.Client, ctx context.Context) (control.Domain, error) {
			return daemon.Renew(ctx, control.LeaseParams{Domain: operands[0], Holder: f.holder, Expires: int64(f.term)})
		})
		if err != nil || !c.json {
			return err
		}
		return printJSON(c.out, d)
	})
}

func release(c *call) action {
	var f leaseFlags
	f.add(c)
	return c.takes(1, 1, func(operands []string) error {
		return c.request(func(daemon *client.Client, ctx context.Context) error {
			return daemon.Release(ctx, control.LeaseParams{Domain: operands[0], Holder: f.holder})
		})
	})
}

func remove(c *call) action {
	wait := c.flags.Bool("wait", false, "let no process enter any more, and wait until the last one has gone")
	kill := c.flags.Bool("kill", false, "the same, and end the processes' use of the accelerator at once")
	return c.takes(1, 1, func(operands []string) error {
		p := control.RemoveParams{Domain: operands[0]}
		switch {
		case *wait && *kill:
			return usagef("--wait and --kill: give one of them")
		case *wait:
			p.Mode = control.RemoveWait
		case *kill:
			p.Mode = control.RemoveEnd
		}
		err := c.request(func(daemon *client.Client, ctx context.Context) error { return daemon.Remove(ctx, p) })
		if errors.Is(err, client.ErrGone) {
			err = fmt.Errorf("the daemon ended meanwhile; the next daemon continues the removal: %w", err)
		}
		return err
	})
}
