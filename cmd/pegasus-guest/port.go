package main

// checkPort tells whether the host can wake a machine's agent. All works without, too.
func checkPort(device string, err error) finding {
	if err != nil {
		return finding{name: "port", detail: err.Error() + ": while idle it looks for work every few milliseconds; `pegasus attach` on the host gives it one"}
	}
	return finding{name: "port", detail: device + " wakes the agent when there is something to do"}
}
