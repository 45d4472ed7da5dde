package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"pegasus/backend/control"
)

// liveEvery is the interval at which progress is drawn.
const liveEvery = 500 * time.Millisecond

// measure shows the shares live and records them after the warm-up.
func (s *stage) measure(policy string, domains []demoDomain, over time.Duration) error {
	live := newLive(s.d, policy, domains)
	defer live.end()
	if err := s.watch(live, demoWarmUp); err != nil {
		return err
	}
	before, err := s.domains()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.watch(live, over); err != nil {
		return err
	}
	after, err := s.domains()
	if err != nil {
		return err
	}
	s.note(policy, domains, before, after, time.Since(begin))
	return nil
}

// watch draws for a while.
func (s *stage) watch(live *live, over time.Duration) error {
	for end := time.Now().Add(over); time.Now().Before(end); {
		if err := s.d.sleep(min(liveEvery, time.Until(end))); err != nil {
			return err
		}
		all, err := s.domains()
		if err != nil {
			return err
		}
		live.draw(all)
		if err := s.ended(); err != nil {
			return err
		}
	}
	return nil
}

// note adds the lines of a policy to the table.
func (s *stage) note(policy string, domains []demoDomain, before, after map[string]control.Domain, took time.Duration) {
	var used, credits float64
	for _, d := range domains {
		used += float64(after[d.name].GPU - before[d.name].GPU)
		credits += float64(d.credits)
	}
	for _, d := range domains {
		a, b := after[d.name], before[d.name]
		r := demoResult{Policy: policy, Domain: d.name, Credits: d.credits, WaitP50: a.WaitP50, WaitP99: a.WaitP99,
			Calls: float64(a.Calls-b.Calls) / took.Seconds()}
		if used > 0 {
			r.Measured = float64(a.GPU-b.GPU) / used
		}
		switch policy {
		case "rr":
			r.Entitled = 1 / float64(len(domains))
		case "accc":
			r.Entitled = float64(d.credits) / credits
		}
		s.d.results = append(s.d.results, r)
	}
}

// live is the progress of one policy: redrawn in place on a terminal, a line now
// and then elsewhere.
type live struct {
	d        *demonstration
	policy   string
	domains  []demoDomain
	terminal bool
	drawn    bool
	last     time.Time
}

func newLive(d *demonstration, policy string, domains []demoDomain) *live {
	l := &live{d: d, policy: policy, domains: domains}
	if f, ok := d.err.(*os.File); ok {
		info, err := f.Stat()
		l.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return l
}

func (l *live) draw(all map[string]control.Domain) {
	if !l.terminal {
		if time.Since(l.last) < 2*time.Second {
			return
		}
		l.last = time.Now()
		var parts []string
		for _, d := range l.domains {
			parts = append(parts, fmt.Sprintf("%s %s", d.name, percent(all[d.name].Share)))
		}
		l.d.say("%-5s %s\n", l.policy, strings.Join(parts, "   "))
		return
	}
	if l.drawn {
		l.d.say("\x1b[%dA", len(l.domains)+1)
	}
	l.drawn = true
	l.d.say("\x1b[Kpolicy %s\n", l.policy)
	for _, d := range l.domains {
		share := all[d.name].Share
		bar := strings.Repeat("█", int(share*50+0.5))
		l.d.say("\x1b[K  %-7s %4d credits  %7s  %s\n", d.name, d.credits, percent(share), bar)
	}
}

func (l *live) end() { l.d.say("\n") }

// report prints the table.
func (d *demonstration) report() error {
	if d.json {
		return printJSON(d.out, d.results)
	}
	t := &table{head: []string{"POLICY", "DOMAIN", ">CREDITS", ">ENTITLED", ">MEASURED", ">ERROR", ">CALLS/S", ">WAIT P50", ">WAIT P99"}}
	last := ""
	for _, r := range d.results {
		name := ""
		if r.Policy != last {
			name, last = r.Policy, r.Policy
		}
		owed, off := "-", "-"
		if r.Entitled > 0 {
			owed, off = percent(r.Entitled), fmt.Sprintf("%+.1f", 100*(r.Measured-r.Entitled))
		}
		t.add(name, r.Domain, strconv.Itoa(r.Credits), owed, percent(r.Measured), off,
			fmt.Sprintf("%.0f", r.Calls), short(r.WaitP50), short(r.WaitP99))
	}
	t.print(d.out)
	if d.ffmpeg != "" {
		fmt.Fprintf(d.out, "\nffmpeg's last frame, scaled on the accelerator: %s\n", d.frame)
	}
	return nil
}
