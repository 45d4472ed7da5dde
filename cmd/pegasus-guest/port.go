package main

import "pegasus/backend/control"

// checkPort checks whether the host can wake a machine's agent. Without that everything still works.
func checkPort(device string, err error) control.Check {
	const name = "port"
	if err != nil {
		return control.Check{Name: name, State: warn, Detail: err.Error() + ": while idle, the agent looks for work every few milliseconds",
			Fix: "`pegasus attach` on the host gives it one"}
	}
	return good(name, device+" wakes the agent when there is something to do")
}
