package vm

import (
	"fmt"
	"time"
)

// backlogged is a job that could use a whole accelerator: BlackScholes in kernels of some
// 10 ms, of which there are always many queued. So a machine that has to wait for a
// processor of the host still has work.
const backlogged = "/bench/blackscholes --size 1048576 --queue 32 --seconds 3600 --no-check --quiet\n"

// portion is a domain's part of an accelerator's time.
type portion struct {
	domain   string
	credits  int
	used     time.Duration
	entitled float64 // of all, in percent, by credits
	measured float64 // and by time
}

// off returns the difference between the measured portion and the entitled one, in points.
func (p portion) off() float64 { return p.measured - p.entitled }

func (p portion) String() string { return fmt.Sprintf("%s %.1f %%", p.domain, p.measured) }

// begun is how much of the accelerator's time a machine has used when its programs are
// no longer only starting.
const begun = 300 * time.Millisecond

// portions measures for a while the portion of each of some domains, and calls a function with the portions so far every second.
func (h *host) portions(over time.Duration, emit func([]portion), domains ...string) []portion {
	h.t.Helper()
	before := h.use(domains)
	end := time.Now().Add(over)
	for {
		time.Sleep(min(time.Second, time.Until(end)))
		now := h.use(domains)
		for i := range now {
			now[i].used -= before[i].used
		}
		apportion(now)
		if !time.Now().Before(end) {
			return now
		}
		emit(now)
	}
}

// use returns the accelerator time that domains have used so far.
func (h *host) use(domains []string) (all []portion) {
	for _, name := range domains {
		d := h.domain(name)
		all = append(all, portion{domain: name, credits: d.Credits, used: time.Duration(d.GPU)})
	}
	return all
}

// apportion works out the parts of the whole.
func apportion(all []portion) {
	var used, credits float64
	for _, p := range all {
		used += float64(p.used)
		credits += float64(p.credits)
	}
	for i := range all {
		p := &all[i]
		p.entitled = 100 * float64(p.credits) / credits
		p.measured = 100 * float64(p.used) / max(used, 1)
	}
}
