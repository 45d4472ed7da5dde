package gate

import (
	"sync/atomic"
	"time"
)

// The workers of a domain may together write LogBurst bytes at once to the host's log, and LogRate bytes a second after
// that, however many workers there are.
const (
	LogBurst = 64 << 10
	LogRate  = 4 << 10
)

const (
	logByte = int64(time.Second) / LogRate // time in which the allowance grows by one byte
	logFull = LogBurst * logByte           // time in which a spent allowance refills
	// logShare is the reciprocal of the share of the domain's allowance that each worker has while the page's value is
	// invalid: the default bound on a domain's processes.
	logShare = 64
	// logSlack bounds the difference between two processes' clocks.
	logSlack = int64(time.Second)
)

// allowance is a number of bytes that refills with time. Its value is the time up to which it is spent; 0 is a full
// allowance.
type allowance struct{ spent atomic.Int64 }

// take takes the bytes that refill in cost nanoseconds, and reports whether the allowance had them.
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

// LogAllowance bounds the bytes that one worker may write to the host's log: by the domain's allowance, which is in the
// page, and by an equal one of its own.
type LogAllowance struct {
	page     *Page
	own      allowance // the worker's, as large as the domain's: it still bounds the worker if another worker refills the page's
	fallback allowance
}

// Log returns an allowance for one worker of the page's domain.
func (p *Page) Log() *LogAllowance { return &LogAllowance{page: p} }

// Take takes n bytes of the allowance and reports whether it had them. If not, they count as lost.
func (l *LogAllowance) Take(n int) bool {
	now, cost := Now(), int64(n)*logByte
	at := &l.page.at.header
	var ok bool
	if spent := at.logged.spent.Load(); spent != 0 && spent > now+logSlack { // no honest worker writes that value
		ok = l.fallback.take(now, cost*logShare)
	} else {
		ok = at.logged.take(now, cost) && l.own.take(now, cost)
	}
	if !ok {
		at.logLost.Add(uint64(n))
	}
	return ok
}

// Lost returns how many bytes the domain's workers could not write since the last call by any of them.
func (l *LogAllowance) Lost() uint64 { return l.page.LogLost() }

// LogLost is Lost for the daemon. Any goroutine may call it.
func (p *Page) LogLost() uint64 { return p.at.header.logLost.Swap(0) }

// LogSpent returns the time up to which the domain's allowance is spent, for SetLogSpent of its next page.
func (p *Page) LogSpent() int64 { return min(p.at.header.logged.spent.Load(), Now()) }

// SetLogSpent continues the allowance of another page. The caller calls it before the domain's workers join.
func (p *Page) SetLogSpent(spent int64) { p.at.header.logged.spent.Store(spent) }
