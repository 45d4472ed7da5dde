package main

import (
	"context"
	"errors"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/frontend"
	"pegasus/guest/smi"
)

// showDevice is `pegasus smi`: as a guest of the domain of this environment, otherwise of the named one.
func showDevice(c *call) action {
	g := guestFlags{}
	var o smi.Options
	c.flags.StringVar(&g.domain, "domain", "default", "outside of guests, show the domain `name`")
	c.flags.BoolVarP(&o.List, "list-gpus", "L", false, "list the devices")
	c.flags.StringVar(&o.Query, "query-gpu", "", "print these `fields`, separated by commas")
	c.flags.StringVar(&o.Format, "format", "", "the `format` of --query-gpu: csv, the default, with or without noheader and nounits")
	return c.takes(0, 0, func([]string) error {
		socket := frontend.Socket()
		if c.given("domain") { // holding an unknown domain would make it
			_, err := ask(c, func(daemon *client.Client, ctx context.Context) (control.Domain, error) {
				return daemon.Domain(ctx, g.domain)
			})
			if err != nil && !errors.As(err, new(*refusal)) {
				return err
			}
		}
		if socket == "" || c.given("domain") {
			h, err := g.hold(c)
			if err != nil {
				return err
			}
			socket = h.socket
		}
		return smi.Show(c.out, c.err, socket, o)
	})
}
