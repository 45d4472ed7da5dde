package policies_test

import (
	"fmt"
	"log"
	"time"

	"pegasus/policies"
)

// A driver, here a loop over virtual time, reports what happens to the scheduler, takes the actions that are due, and
// calls again at Next. Two domains always have work; the credits of the second are three times those of the first.
func Example() {
	accounts, err := policies.NewAccounts("accc", policies.Defaults(policies.Production))
	if err != nil {
		log.Fatal(err)
	}
	scheduler := policies.NewScheduler(accounts...)
	names := map[policies.ID]string{1: "render", 2: "train"}
	now := policies.Time(0)
	for _, domain := range []policies.Domain{{ID: 1, Credits: 256}, {ID: 2, Credits: 768}} {
		scheduler.Step(now, &policies.Event{Kind: policies.Attach, Domain: domain})
		scheduler.Step(now, &policies.Event{Kind: policies.Wake, Domain: domain, Signal: policies.Arrived})
	}

	running := policies.ID(0)
	used := map[policies.ID]time.Duration{}
	for end := policies.Time(12 * time.Second); now < end; {
		for _, action := range scheduler.Ready(now) {
			if action.Open {
				running = action.Domain
			} else if running == action.Domain {
				running = 0
			}
		}
		then := min(scheduler.Next(), end)
		if running != 0 { // its work holds the engine until the next decision
			d := time.Duration(then - now)
			used[running] += d
			scheduler.Step(then, &policies.Event{Kind: policies.Charge, Domain: policies.Domain{ID: running}, Used: policies.Usage{Compute: d}})
		}
		now = then
	}
	for id := policies.ID(1); id <= 2; id++ {
		fmt.Printf("%s: %v\n", names[id], used[id].Round(time.Second))
	}
	// Output:
	// render: 3s
	// train: 9s
}
