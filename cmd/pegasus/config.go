package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/backend/sched"
	"pegasus/configs"
	"pegasus/policies"
)

func config(c *call) action {
	c.jsonFlag()
	changes := c.flags.Bool("changes", false, "print only what a reload would change")
	check := c.flags.Bool("check", false, "check the files of a configuration, without a daemon")
	return c.takes(0, 1, func(files []string) error {
		if *check && *changes {
			return usagef("--changes is of the running daemon, --check of files: give one of them")
		}
		if *check {
			path := configs.Path
			if len(files) == 1 {
				path = files[0]
			}
			return c.checkConfig(path)
		}
		if len(files) > 0 {
			return usagef("a FILE goes with --check")
		}
		g, err := ask(c, (*client.Client).Config)
		if err != nil {
			return err
		}
		switch {
		case c.json && *changes:
			if err := printJSON(c.out, g.Reload); err != nil {
				return err
			}
			return refusedReload(g)
		case c.json:
			return printJSON(c.out, g)
		case *changes:
			fmt.Fprint(c.out, pendingText(g))
			return refusedReload(g)
		}
		c.out.Write(configText(g))
		for line := range strings.Lines(pendingText(g)) {
			fmt.Fprint(c.out, "# ", line)
		}
		return nil
	})
}

// configText returns a configuration as a file, with the origin of each setting as a comment.
func configText(g control.Config) []byte {
	tables := make([]configs.Table, len(g.Tables))
	origins := map[[3]string]control.Origin{}
	for i, t := range g.Tables {
		tables[i] = configs.Table{Kind: t.Table, Name: t.Name}
		for _, s := range t.Settings {
			tables[i].Settings = append(tables[i].Settings, configs.Setting{Key: s.Key, Value: s.Value})
			origins[[3]string{t.Table, t.Name, s.Key}] = s.Origin
		}
	}
	return append(configs.Print(tables, func(t configs.Table, s configs.Setting) string {
		return originText(origins[[3]string{t.Kind, t.Name, s.Key}])
	}), '\n')
}

// originText returns the origin of a setting, for people.
func originText(o control.Origin) string {
	place := configs.Place{File: o.File, Line: o.Line}.String()
	var text string
	switch o.Source {
	case string(configs.FromFile), string(configs.FromSpecification):
		return place
	case string(configs.FromTemplate):
		return place + ", [default_domain]"
	case control.FromFlag:
		return "the daemon's command line or environment"
	case control.FromMachine:
		return "the machine's definition"
	case control.FromBefore:
		return "an earlier configuration, until the restart"
	case control.FromRun:
		text = "run"
	default:
		text = o.Source
	}
	if o.By != nil && o.By.Remote != "" {
		text += " by " + o.By.Remote
	} else if o.By != nil {
		text += fmt.Sprintf(" by uid %d", o.By.UID)
	}
	if o.Source == control.FromRun && o.By != nil {
		text += fmt.Sprintf(", process %d", o.By.PID)
	}
	if !o.At.IsZero() {
		text += ", " + o.At.Local().Format("2006-01-02 15:04:05")
	}
	return text
}

// pendingText returns a line for each change of a reload, and for each mistake that prevents it.
func pendingText(g control.Config) string {
	var b strings.Builder
	for _, w := range g.Reload.Warnings {
		fmt.Fprintln(&b, "warning:", w)
	}
	for _, m := range g.Reload.Mistakes {
		fmt.Fprintln(&b, m.Text)
	}
	for _, c := range g.Reload.Changes {
		note := ""
		if at := (configs.Place{File: c.File, Line: c.Line}).String(); at != "" {
			note = " (" + at + ")"
		}
		if c.Restart {
			note += "  (takes a restart of the daemon)"
		}
		fmt.Fprintln(&b, c.Text+note)
	}
	switch {
	case g.Config == "":
		fmt.Fprintln(&b, "a reload changes nothing: the daemon has no configuration file")
	case len(g.Reload.Mistakes) > 0:
		fmt.Fprintf(&b, "%s: a reload would be refused\n", g.Config)
	case len(g.Reload.Changes) == 0:
		fmt.Fprintf(&b, "%s: a reload would change nothing\n", g.Config)
	}
	return b.String()
}

// refusedReload returns an error if a reload would be refused.
func refusedReload(g control.Config) error {
	if n := len(g.Reload.Mistakes); n > 0 {
		return fmt.Errorf("reload %s: %s", g.Config, control.Count(n, "mistake"))
	}
	return nil
}

// accepted are the names that configurations may use, in every build.
var accepted = configs.Options{Policies: policies.Names(), Specification: sched.Specification}

// checkConfig checks files, and returns an error if they have mistakes.
func (c *call) checkConfig(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	found := struct {
		Config   string            `json:"config"`
		Mistakes []control.Mistake `json:"mistakes"`
		Warnings []string          `json:"warnings,omitempty"`
	}{Config: path, Mistakes: []control.Mistake{}}
	read, err := configs.Load(path, accepted)
	var all configs.Errors
	switch {
	case errors.As(err, &all):
		for _, e := range all {
			found.Mistakes = append(found.Mistakes, control.Mistake{File: e.File, Line: e.Line, Text: e.Error()})
		}
	case errors.Is(err, os.ErrNotExist) && path == configs.Path:
		found.Config = ""
	case err != nil:
		found.Mistakes = append(found.Mistakes, control.Mistake{Text: err.Error()})
	default:
		found.Warnings = read.Warnings
	}
	if c.json {
		if err := printJSON(c.out, found); err != nil {
			return err
		}
	} else {
		for _, w := range found.Warnings {
			fmt.Fprintln(c.out, "warning:", w)
		}
		for _, m := range found.Mistakes {
			fmt.Fprintln(c.out, m.Text)
		}
		if found.Config == "" {
			fmt.Fprintln(c.out, "no configuration file, the defaults hold")
		} else if len(found.Mistakes) == 0 {
			fmt.Fprintf(c.out, "%s: fine\n", path)
		}
	}
	if n := len(found.Mistakes); n > 0 {
		return fmt.Errorf("check %s: %s", path, control.Count(n, "mistake"))
	}
	return nil
}

// showDomain prints a domain with its settings.
func (c *call) showDomain(name string) error {
	d, err := ask(c, func(daemon *client.Client, ctx context.Context) (control.Domain, error) {
		return daemon.Domain(ctx, name)
	})
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(c.out, []control.Domain{d})
	}
	domainTable([]control.Domain{d}).print(c.out)
	fmt.Fprintf(c.out, "\nsocket     %s\nprocesses  %s\n", orDash(d.Socket), orDash(strings.Trim(fmt.Sprint(d.PIDs), "[]")))
	for _, l := range d.Leases {
		expires := ""
		if !l.Expires.IsZero() {
			expires = ", until " + l.Expires.Local().Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(c.out, "lease      %s, by uid %d%s\n", l.Holder, l.UID, expires)
	}
	fmt.Fprintln(c.out)
	t := &table{head: []string{"SETTING", "VALUE", "DEFAULT", "FROM"}}
	for _, s := range d.Settings {
		t.add(s.Key, s.Value, s.Default, originText(s.Origin))
	}
	t.print(c.out)
	return nil
}
