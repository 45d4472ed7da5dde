package control

// FitParams describes a domain that does not exist.
type FitParams struct {
	Settings map[string]string `json:"settings,omitempty"`   // spelled as in the configuration; accelerator bounds the answer to one
	Predict  bool              `json:"predict,omitempty"`    // also simulate
	Kernel   int64             `json:"kernel_ns,omitempty"`  // of the simulated domain: length of its requests; 0: 1 ms
	Demand   float64           `json:"demand,omitempty"`     // of the simulated domain: part of the time that it computes while it is alone; 0: 1
	Seconds  int               `json:"simulate_s,omitempty"` // simulated time; 0: 5
}

// Fit reports whether a domain would fit on an accelerator, and the consequences for the domains there.
type Fit struct {
	Accelerator string      `json:"accelerator"`
	Policy      string      `json:"policy"`
	Fits        bool        `json:"fits"`
	Reasons     []string    `json:"reasons"`  // why it does not fit
	Warnings    []string    `json:"warnings"` // it fits, but an objective cannot be kept
	Domain      FitDomain   `json:"domain"`
	Others      []FitDomain `json:"others"`
	Simulated   int64       `json:"simulated_ns"` // simulated time of the predictions; 0: there are none
}

// FitDomain has the share of one domain without and with the new one. Parts are from 0 to 1; 0: nothing is owed.
type FitDomain struct {
	Domain    string      `json:"domain"`
	Before    float64     `json:"before"` // entitled
	After     float64     `json:"after"`  // entitled
	Objective float64     `json:"objective"`
	Breaks    bool        `json:"breaks"` // the objective is above After, and the policy does not make up for it
	Predicted *Prediction `json:"predicted,omitempty"`
}

// Prediction is the result of a simulation with the demand that was measured: an estimate.
type Prediction struct {
	Share   float64 `json:"share"`       // part of the used time, 0 to 1
	WaitP99 int64   `json:"wait_p99_ns"` // of requests
}
