package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/policies"
)

func listDomains(c *call) action {
	c.jsonFlag()
	c.wideFlag()
	watch := c.flags.Bool("watch", false, "print again every second until interrupted")
	return c.takes(0, 1, func(names []string) error {
		switch {
		case *watch && len(names) > 0:
			return usagef("--watch shows all domains: leave %s out", names[0])
		case *watch:
			return c.watchDomains()
		case len(names) > 0:
			return c.showDomain(names[0])
		}
		domains, err := ask(c, (*client.Client).Domains)
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, domains)
		}
		if len(domains) == 0 {
			printProse(c.out, 0, noDomains)
			return nil
		}
		c.printDomains(domains)
		return nil
	})
}

func (c *call) printDomains(domains []control.Domain) {
	t := domainTable(domains)
	t.wide = c.wide
	t.print(c.out)
}

func domainTable(domains []control.Domain) *table {
	t := &table{head: []string{"DOMAIN", "ACCELERATOR", "STATE", ">CREDITS", ">ENTITLED", ">SHARE", ">GPU TIME",
		">CALLS", ">WAIT P50", ">WAIT P99", ">MEMORY", ">PROCESSES", "OWNER"},
		optional: []string{"SWAPPED OUT", "SWAPPED", "STEAL", "MACHINE", "CALLS", "GPU TIME", "WAIT P50", "PROCESSES", "OWNER", "WAIT P99"}}
	swaps := slices.ContainsFunc(domains, func(d control.Domain) bool { return d.Swapped+d.SwapOut > 0 })
	if swaps {
		t.head = append(t.head, ">SWAPPED", ">SWAPPED OUT")
	}
	machines := slices.ContainsFunc(domains, func(d control.Domain) bool { return d.Machine != nil })
	if machines {
		t.head = append(t.head, "MACHINE")
	}
	seen := slices.ContainsFunc(domains, func(d control.Domain) bool { return d.VCPUs > 0 })
	if seen {
		t.head = append(t.head, ">STEAL")
	}
	objectives := slices.ContainsFunc(domains, func(d control.Domain) bool { return len(d.Objective.Objectives) > 0 })
	if objectives {
		t.head = append(t.head, "OBJECTIVE")
	}
	for _, d := range domains {
		row := []string{d.Name, orDash(d.Accelerator), d.State, strconv.Itoa(d.Credits), owed(d.Entitled), percent(d.Share),
			short(d.GPU), strconv.FormatUint(d.Calls, 10), short(d.WaitP50), short(d.WaitP99),
			quota(d.Memory, d.MemoryQuota), strconv.Itoa(d.Processes), ownerText(d)}
		if swaps {
			row = append(row, bytesText(d.Swapped), bytesText(d.SwapOut))
		}
		if machines {
			row = append(row, machineText(d.Machine))
		}
		if seen {
			steal := "-"
			if d.VCPUs > 0 {
				steal = percent(d.Steal)
			}
			row = append(row, steal)
		}
		if objectives {
			row = append(row, objectiveText(&d.Objective))
		}
		t.add(row...)
	}
	return t
}

// owed returns the text of a domain's part of its accelerator, or a dash if it has none.
func owed(part float64) string {
	if part == 0 {
		return "-"
	}
	return percent(part)
}

// objectiveText returns the state of a domain's objectives, with the names of violated ones.
func objectiveText(o *control.Objective) string {
	if o.State == control.ObjectiveNone {
		return "-"
	}
	text := o.State
	for _, s := range o.Objectives {
		if s.State == control.ObjectiveViolated {
			text += " " + s.Name
		}
	}
	return text
}

// ownerText returns the owner of a domain, with the holders of its leases.
func ownerText(d control.Domain) string {
	switch {
	case d.Removing:
		return "none: is being removed"
	case len(d.Leases) == 1:
		return d.Owner + " by " + d.Leases[0].Holder
	case len(d.Leases) > 1:
		return fmt.Sprintf("%s by %s", d.Owner, control.Count(len(d.Leases), "holder"))
	default:
		return orDash(d.Owner)
	}
}

// machineText returns the state of a domain's machine.
func machineText(m *control.Machine) string {
	if m == nil {
		return "-"
	}
	switch {
	case m.State != "running" || m.Agent && m.AgentRelease == "":
		return m.State
	case !m.Agent:
		return "running, no agent yet"
	default:
		return "running, agent " + m.AgentRelease
	}
}

// watchDomains prints the domains every second until it is interrupted. If the daemon ends, it waits for the
// next one. To an output that isn't a terminal it prints one table after the other, without escapes.
func (c *call) watchDomains() error {
	daemon, err := c.dial()
	if err != nil {
		return err
	}
	defer daemon.Close() // it connects again when the next daemon runs
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	there := true
	for {
		domains, err := daemon.Domains(context.Background())
		switch {
		case err == nil:
			there = true
			if err := c.showDomains(domains); err != nil {
				return err
			}
		case errors.As(err, new(*control.Error)):
			return err
		default:
			if there {
				fmt.Fprintf(c.err, "%v; waiting for the next daemon\n", err)
			}
			there = false
		}
		select {
		case <-tick.C:
		case <-stop:
			return nil
		}
	}
}

// showDomains prints one update of domains --watch.
func (c *call) showDomains(domains []control.Domain) error {
	if c.json {
		return json.NewEncoder(c.out).Encode(domains)
	}
	if isTerminal(c.out) {
		fmt.Fprint(c.out, "\x1b[H\x1b[2J")
	}
	c.printDomains(domains)
	return c.outError()
}

// outError returns the first error of writing the output.
func (c *call) outError() error {
	if p, ok := c.out.(*printed); ok {
		return p.err
	}
	return nil
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	if p, ok := w.(*printed); ok {
		w = p.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

func listAccelerators(c *call) action {
	c.jsonFlag()
	c.wideFlag()
	return c.takes(0, 0, func([]string) error {
		all, err := ask(c, (*client.Client).Accelerators)
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, all)
		}
		t := &table{head: []string{"ACCELERATOR", "TYPE", "POLICY", "MODE", ">TICK", ">BUSY", ">MEMORY", ">DOMAINS", ">WEIGHT"},
			optional: []string{"WEIGHT", "TICK", "MODE"}, wide: c.wide}
		for _, a := range all {
			t.add(a.Name, a.Type, a.Policy, a.Mode, short(a.Tick), percent(a.Busy), quota(a.MemoryUsed, a.Memory),
				fmt.Sprintf("%d / %d", len(a.Domains), a.MaxDomains), strconv.Itoa(a.Weight))
		}
		t.print(c.out)
		return nil
	})
}

// policyHelp returns a line for each policy.
func policyHelp() string {
	var b strings.Builder
	for _, s := range policies.Specs() {
		fmt.Fprintf(&b, "  %-8s %s\n", s.Name, s.Serves)
	}
	return b.String()
}

func policy(c *call) action {
	c.jsonFlag()
	mode := c.flags.String("mode", "", "`production` or paper")
	accelerator := c.flags.String("accelerator", "", "only the accelerator of this `name`")
	explain := c.flags.Bool("explain", false, "explain its last decision, and print the cost of decisions")
	return c.takes(0, 1, func(names []string) error {
		p := control.PolicyParams{Mode: *mode, Accelerator: *accelerator}
		if len(names) == 1 {
			p.Name = names[0]
		}
		all, err := ask(c, func(daemon *client.Client, ctx context.Context) ([]control.Accelerator, error) {
			return daemon.SwitchPolicy(ctx, p)
		})
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, all)
		}
		if *explain {
			return c.explainPolicies(all)
		}
		t := &table{head: []string{"ACCELERATOR", "POLICY", "MODE", ">TICK"}}
		for _, a := range all {
			t.add(a.Name, a.Policy, a.Mode, short(a.Tick))
		}
		t.print(c.out)
		if p.Name == "" && p.Mode == "" {
			s, err := ask(c, (*client.Client).Status)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.out)
			printProse(c.out, 0, "There are: "+strings.Join(s.Policies, ", "))
		}
		return nil
	})
}

func (c *call) explainPolicies(all []control.Accelerator) error {
	t := &table{head: []string{"ACCELERATOR", "POLICY", ">DECISIONS", ">COST P50", ">COST P99", "LAST DECISION"},
		optional: []string{"COST P50"}, prose: true}
	for _, a := range all {
		cost := a.DecisionCost
		t.add(a.Name, a.Policy, strconv.FormatUint(cost.Count, 10), short(cost.P50), short(cost.P99), a.Explanation)
	}
	t.print(c.out)
	return nil
}

func set(c *call) action {
	c.jsonFlag()
	return c.takes(2, -1, func(operands []string) error {
		p := control.SetParams{Domain: operands[0]}
		var err error
		if p.Settings, err = parseSettings(operands[1:]); err != nil {
			return err
		}
		d, err := ask(c, func(daemon *client.Client, ctx context.Context) (control.Domain, error) { return daemon.Set(ctx, p) })
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, d)
		}
		c.printDomains([]control.Domain{d})
		return nil
	})
}

// parseSettings parses operands of the form KEY=VALUE.
func parseSettings(operands []string) (map[string]string, error) {
	settings := map[string]string{}
	for _, o := range operands {
		key, value, ok := strings.Cut(o, "=")
		if !ok || key == "" {
			return nil, usagef("%q isn't KEY=VALUE, such as credits=512", o)
		}
		if was, twice := settings[key]; twice {
			return nil, usagef("%s is given twice, as %s and as %s", key, was, value)
		}
		settings[key] = value
	}
	return settings, nil
}

func reload(c *call) action {
	c.jsonFlag()
	return c.takes(0, 0, func([]string) error {
		r, err := ask(c, (*client.Client).Reload)
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, r)
		}
		if len(r.Changes) == 0 {
			fmt.Fprintf(c.out, "%s: nothing changed\n", orDash(r.Config))
		}
		for _, change := range r.Changes {
			note := ""
			if !change.Applied {
				note = "  (takes a restart of the daemon)"
			}
			printProse(c.out, 4, change.Text+note)
		}
		for _, w := range r.Warnings {
			fmt.Fprintln(c.err, "warning:", w)
		}
		return nil
	})
}

func events(c *call) action {
	c.jsonFlag()
	return c.takes(0, 0, func([]string) error {
		daemon, err := c.dial()
		if err != nil {
			return err
		}
		defer daemon.Close()
		return daemon.Events(context.Background(), func(e control.Event) error {
			if c.json {
				return json.NewEncoder(c.out).Encode(e)
			}
			by := ""
			if e.By != nil {
				by = fmt.Sprintf(" (by user %d, process %d)", e.By.UID, e.By.PID)
				if e.By.Remote != "" {
					by = fmt.Sprintf(" (by %s)", e.By.Remote)
				}
			}
			printProse(c.out, 14, fmt.Sprintf("%s  %-10s %-12s %s%s", e.Time.Local().Format("15:04:05.000"), e.Kind, orDash(e.Domain), e.Text, by))
			return c.outError()
		})
	})
}

// beginTime is the time limit for a recording to begin.
const beginTime = 20 * time.Second

// until returns a context that ends so many seconds after the first call of begin, or at SIGINT, SIGTERM or the end of
// the terminal; 0: only then. Without a call of begin it ends beginTime later.
func until(seconds float64) (ended context.Context, begin, stop func()) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	interrupted, letGo := signal.NotifyContext(context.Background(), ends...)
	ended, cancel := context.WithCancel(interrupted)
	if seconds == 0 {
		return ended, func() {}, func() { cancel(); letGo() }
	}
	length := time.Duration(seconds * float64(time.Second))
	timer := time.AfterFunc(beginTime+length, cancel)
	return ended, sync.OnceFunc(func() { timer.Reset(length) }), func() { timer.Stop(); cancel(); letGo() }
}

// noDomains is the text of commands that describe all domains where there is none.
const noDomains = "no domains: `pegasus run -- PROGRAM` makes one, or declare [[domain]] in the configuration"

func why(c *call) action {
	c.jsonFlag()
	return c.takes(0, 1, func(names []string) error {
		name := ""
		if len(names) == 1 {
			name = names[0]
		}
		all, err := ask(c, func(daemon *client.Client, ctx context.Context) ([]control.Explanation, error) {
			return daemon.Explain(ctx, name)
		})
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(c.out, all)
		}
		if len(all) == 0 {
			printProse(c.out, 0, noDomains)
		}
		for _, e := range all {
			fmt.Fprintln(c.out, e.Domain)
			for _, line := range e.Lines {
				printProse(c.out, 4, "  "+line)
			}
		}
		return nil
	})
}

func stop(c *call) action {
	var p control.ShutdownParams
	c.flags.BoolVar(&p.IfIdle, "if-idle", false, "only when no guest and no program uses it")
	return c.takes(0, 0, func([]string) error {
		daemon, err := c.dial()
		if err != nil {
			return err
		}
		return shutDown(daemon, p)
	})
}

func version(c *call) action {
	c.jsonFlag()
	return c.takes(0, 0, func([]string) error {
		v := struct {
			Command  string          `json:"command"`
			Protocol int             `json:"protocol"`
			Daemon   *control.Status `json:"daemon,omitempty"`
		}{Command: control.Release(), Protocol: control.Version}
		s, err := ask(c, (*client.Client).Status)
		if err == nil {
			v.Daemon = &s
		}
		if c.json {
			return printJSON(c.out, v)
		}
		fmt.Fprintf(c.out, "pegasus   %s\n", v.Command)
		if v.Daemon != nil {
			fmt.Fprintf(c.out, "pegasusd  %s (process %d, %s)\n", s.Version, s.PID, s.RuntimeDir)
		}
		return nil
	})
}
