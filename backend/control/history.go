package control

// History has the latest samples of domains.
type History struct {
	Interval int64           `json:"interval_ns"` // between two samples
	Domains  []DomainHistory `json:"domains"`     // those that were recently on an accelerator, by name
}

// DomainHistory has the latest samples of one domain.
type DomainHistory struct {
	Domain      string   `json:"domain"`
	Accelerator string   `json:"accelerator"` // on which it is, or was last
	Samples     []Sample `json:"samples"`     // the oldest first, at most 300
}

// Sample describes a domain over one interval.
type Sample struct {
	At         int64   `json:"at"`          // end of the interval, in ns since 1970
	Share      float64 `json:"share"`       // part of its accelerator's used time, 0 to 1
	Entitled   float64 `json:"entitled"`    // part of its accelerator, 0 to 1; 0: nothing is owed
	Backlogged bool    `json:"backlogged"`  // for at least half of the interval its work ran or waited
	WaitP99    int64   `json:"wait_p99_ns"` // 99th percentile of the waits of the requests admitted in the interval; 0: none
	Calls      float64 `json:"calls"`       // per second
	Memory     int64   `json:"memory"`      // bytes of device memory
}

// HistoryParams names a domain; empty: all.
type HistoryParams struct{ Domain string }
