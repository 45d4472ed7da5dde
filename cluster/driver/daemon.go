package driver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/cluster/claims"
)

// daemon calls the daemon of the node. It connects for each operation, so that the daemon may restart at any time.
type daemon struct {
	runtimeDir string
}

// do calls f with a connection.
func (d daemon) do(f func(*client.Client) error) error {
	c, err := client.Dial(filepath.Join(d.runtimeDir, control.SocketName))
	if err == nil {
		defer c.Close()
		err = f(c)
	}
	if err != nil {
		return fmt.Errorf("daemon of %s: %w", d.runtimeDir, err)
	}
	return nil
}

// host is a daemon's description.
type host struct {
	accelerators []control.Accelerator
	release      string
	declared     map[string]int64 // credits of the configuration's domains, by the accelerator that they are tied to
}

// describe returns the daemon's description.
func (d daemon) describe(ctx context.Context) (h host, err error) {
	err = d.do(func(c *client.Client) error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		h.release = status.Version
		if h.accelerators, err = c.Accelerators(ctx); err != nil {
			return err
		}
		if !slices.ContainsFunc(h.accelerators, func(a control.Accelerator) bool { return a.MaxCredits > 0 }) {
			return nil
		}
		config, err := c.Config(ctx)
		h.declared = declared(config.Tables)
		return err
	})
	return h, err
}

// declared returns the credits of the domains that are tied to each accelerator.
func declared(tables []control.Table) map[string]int64 {
	all := map[string]int64{}
	for _, t := range tables {
		if t.Table != "domain" {
			continue
		}
		var on string
		var credits int64
		for _, s := range t.Settings {
			switch s.Key {
			case "accelerator":
				on = strings.Trim(s.Value, `"`)
			case "credits":
				credits, _ = strconv.ParseInt(s.Value, 10, 64)
			}
		}
		if on != "" {
			all[on] += credits
		}
	}
	return all
}

// regions returns the daemon's directory of regions of virtual machines; "": it has none.
func (d daemon) regions(ctx context.Context) (dir string, err error) {
	err = d.do(func(c *client.Client) error {
		config, err := c.Config(ctx)
		for _, t := range config.Tables {
			for _, s := range t.Settings {
				if t.Table == "daemon" && s.Key == "regions" && err == nil {
					dir, err = strconv.Unquote(s.Value)
				}
			}
		}
		return err
	})
	return dir, err
}

// create makes the domain, unless the daemon has it.
func (d daemon) create(ctx context.Context, of *claims.Domain) error {
	return d.do(func(c *client.Client) error {
		_, err := c.Create(ctx, control.CreateParams{Domain: of.Name(), Settings: of.Settings, Holder: claims.Holder})
		return err
	})
}

// remove ends the driver's lease of a domain and, unless another holder has one, the domain with the processes that are
// left in it. It blocks until the domain has gone.
func (d daemon) remove(ctx context.Context, name string) error {
	return d.do(func(c *client.Client) error {
		if err := c.Release(ctx, control.LeaseParams{Domain: name, Holder: claims.Holder}); err != nil && !missing(err) {
			return err
		}
		left, err := c.Domain(ctx, name)
		if err == nil && len(left.Leases) == 0 {
			err = c.Remove(ctx, control.RemoveParams{Domain: name, Mode: control.RemoveEnd})
		}
		if missing(err) {
			return nil
		}
		return err
	})
}

// processes returns the number of a domain's processes, 0 if there is no such domain.
func (d daemon) processes(ctx context.Context, name string) (n int, err error) {
	err = d.do(func(c *client.Client) error {
		dom, err := c.Domain(ctx, name)
		n = dom.Processes
		if missing(err) {
			return nil
		}
		return err
	})
	return n, err
}

func missing(err error) bool {
	var e *control.Error
	return errors.As(err, &e) && e.Code == control.CodeNotFound
}

// held returns the names of the domains that the driver holds.
func (d daemon) held(ctx context.Context) (names []string, err error) {
	err = d.do(func(c *client.Client) error {
		all, err := c.Domains(ctx)
		for _, dom := range all {
			if slices.ContainsFunc(dom.Leases, func(l control.Lease) bool { return l.Holder == claims.Holder }) {
				names = append(names, dom.Name)
			}
		}
		return err
	})
	return names, err
}
