package gate

import (
	"sync/atomic"
	"time"
)

// The host's log takes LogBurst bytes at once of what the workers of a domain have
// to report, and LogRate bytes a second after that, however many workers there are.
const (
	LogBurst = 64 << 10
	LogRate  = 4 << 10
)

const (
	logByte = int64(time.Second) / LogRate // in which one more byte may be written
	logFull = LogBurst * logByte           // in which an allowance that was spent is whole again
	// logShare is the part of the domain's allowance that a worker has by itself
	// while the page holds nonsense: one in as many as a domain has processes by default.
	logShare = 64
	// logSlack is by how much the clocks of two processes may differ.
	logSlack = int64(time.Second)
)

// allowance is a number of bytes that refills with time. Its value is the time up to
// which it is spent; a value of 0 is whole.
type allowance struct{ spent atomic.Int64 }

// take takes what cost nanoseconds refill, and reports whether that much was there.
func (a *allowance) take(now, cost int64) bool {
	for {
		was := a.spent.Load()
		next := now - logFull + cost
		if was != 0 {
			next = max(next, was+cost)
		}
		if next > now {
			return false
		}
		if a.spent.CompareAndSwap(was, next) {
			return true
		}
	}
}

// LogAllowance is what one worker may write to the host's log: the domain's
// allowance, which lies in the page, and never more than that by itself.
type LogAllowance struct {
	page     *Page
	own      allowance // the worker's, as large as the domain's: it holds if another worker refills the page's
	fallback allowance
}

// Log returns an allowance for one worker of the page's domain.
func (p *Page) Log() *LogAllowance { return &LogAllowance{page: p} }

// Take takes n bytes of the allowance and reports whether they were there. If not,
// they count as lost.
func (l *LogAllowance) Take(n int) bool {
	now, cost := Now(), int64(n)*logByte
	at := &l.page.at.header
	var ok bool
	if spent := at.logged.spent.Load(); spent != 0 && spent > now+logSlack { // no worker of ours wrote that
		ok = l.fallback.take(now, cost*logShare)
	} else {
		ok = at.logged.take(now, cost) && l.own.take(now, cost)
	}
	if !ok {
		at.logLost.Add(uint64(n))
	}
	return ok
}

// Lost returns how many bytes the domain's workers couldn't write since it was last
// called by any of them.
func (l *LogAllowance) Lost() uint64 { return l.page.LogLost() }

// LogLost is Lost for the daemon. It may be called from any goroutine.
func (p *Page) LogLost() uint64 { return p.at.header.logLost.Swap(0) }

// LogSpent returns how far the domain's allowance is spent, for SetLogSpent of its next page.
func (p *Page) LogSpent() int64 { return min(p.at.header.logged.spent.Load(), Now()) }

// SetLogSpent goes on with an allowance of another page. The domain's workers aren't there yet.
func (p *Page) SetLogSpent(spent int64) { p.at.header.logged.spent.Store(spent) }
