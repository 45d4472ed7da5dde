package policies

import "time"

// Paper mode: the algorithms as they were published, for the figures of the papers. Files with names that begin with
// paper_ hold them, one for each production file that has a published counterpart; the constructor of a policy chooses
// between the two, so that the code of production mode can be read without them. They are in this package because they
// use the same frames.
//
//	paper_ring.go         windows: rr, accc, xc, slaf
//	paper_slaf.go         objectives: slaf
//	paper_coordinated.go  ticks: augc, cosched
//	paper_queue.go        requests: the frame of fifo, credit, band, drr, prt and ht
//	paper_credit.go       the shares of credit and band
//
// The share of drr differs in few lines, which are in its own file.

var debtAF = newCount(Param{
	Key: "debt_af", Name: "DebtAF", Zero: "nothing is repaid",
	Doc: "paper mode: one part in so many of an overrun is repaid in each window; 33 is usual",
}, 0, 0, 60)

// repaidParts returns the number of windows over which an overrun is repaid; 0: it is not.
func (o *Options) repaidParts() int { return debtAF.of(o) }

// overrun is the time that a domain used beyond its windows, if it must be repaid: a part of the debt each turn.
type overrun struct {
	window, used, debt time.Duration
}

// begin returns the length of a window that was to have the given length and repays 1/parts of the debt; 0:
// none.
func (o *overrun) begin(window time.Duration, parts int) time.Duration {
	if parts > 0 {
		o.debt = min(o.debt+max(o.used-o.window, 0), maxDebt)
		repaid := max(min(o.debt/time.Duration(parts), window-minWindow), 0)
		o.debt -= repaid
		window -= repaid
	}
	o.window, o.used = window, 0
	return window
}

// unbound sets a window without end, which nothing overruns.
func (o *overrun) unbound() { o.window, o.used = 1<<63-1, 0 }
