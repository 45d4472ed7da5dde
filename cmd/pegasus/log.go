package main

import (
	"context"
	"fmt"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

func logLevel(c *call) action {
	c.jsonFlag()
	return c.takes(0, 1, func(levels []string) error {
		l, err := ask(c, func(daemon *client.Client, ctx context.Context) (control.Log, error) {
			if len(levels) == 1 {
				return daemon.SetLog(ctx, control.LogParams{Level: levels[0]})
			}
			return daemon.Log(ctx)
		})
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, l)
		}
		fmt.Fprintf(c.out, "%s (%s)\n", l.Level, originText(l.Origin))
		return nil
	})
}
