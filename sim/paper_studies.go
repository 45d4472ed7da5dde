package sim

import (
	"fmt"
	"time"

	"pegasus/policies"
)

// studies are models of one mechanism of a paper, without accelerators: a plan names one, and its options are the
// parameters.
var studies = map[string]func(p *Plan, seed uint64) (Metrics, error){
	"deadline":  studyDeadline,
	"predictor": studyPredictor,
}

// study runs the study of a plan.
func (p *Plan) study(seed uint64) (Metrics, error) {
	f, ok := studies[p.Study]
	if !ok {
		return nil, fmt.Errorf("there is no study %q", p.Study)
	}
	return f(p, seed)
}

// studyDeadline models a thread under Linux' SCHED_DEADLINE with jobs that compute, wait for the accelerator
// and compute again, one job after the other. Its metric is used: the percentage of the time that it used its
// CPU or the accelerator.
func studyDeadline(p *Plan, seed uint64) (Metrics, error) {
	o := struct {
		Runtime, Period, CPU, GPU, Time time.Duration
		Noise                           int
		Correct                         bool
	}{Runtime: 10 * time.Millisecond, Period: 30 * time.Millisecond, CPU: 3 * time.Millisecond, GPU: 4 * time.Millisecond, Time: time.Minute}
	if err := assign(&o, p.Options); err != nil {
		return nil, err
	}
	if o.Runtime <= 0 || o.Period < o.Runtime || o.CPU <= 0 {
		return nil, fmt.Errorf("runtime %v, period %v, cpu %v: 0 < runtime ≤ period, and cpu > 0", o.Runtime, o.Period, o.CPU)
	}
	chance, noise := newStream(seed, "thread"), logNormal(o.Noise)
	thread := server{runtime: o.Runtime, period: o.Period, remaining: o.Runtime, deadline: Time(o.Period)}
	var now Time
	var used time.Duration
	compute := func(d time.Duration) {
		for d > 0 {
			if thread.remaining <= 0 { // throttled until its deadline
				now = max(now, thread.deadline)
				thread.remaining, thread.deadline = thread.remaining+o.Runtime, thread.deadline.Add(o.Period)
				continue
			}
			part := min(d, thread.remaining)
			thread.remaining -= part
			now, used, d = now.Add(part), used+part, d-part
		}
	}
	for now < Time(o.Time) {
		compute(noise.times(o.CPU, chance))
		wait := noise.times(o.GPU, chance)
		now, used = now.Add(wait), used+wait
		asleep := wait
		if !o.Correct {
			asleep = 0
		}
		thread.wake(now, asleep)
		compute(noise.times(o.CPU, chance))
	}
	return Metrics{"": {"used": 100 * float64(used) / float64(now)}}, nil
}

// studyPredictor feeds the cost history with a stream of requests. Its metrics are within_N: the percentage
// of predictions with an error of at most N %.
func studyPredictor(p *Plan, seed uint64) (Metrics, error) {
	o := struct {
		Size, Keys, Requests int
		Shortest, Longest    time.Duration // means of the keys, drawn in between
		Noise                int           // σ of a request about its key's mean, ‰
		Drift                int           // σ of a step of a key's mean, which is taken at each request, ‰
		Recent               int           // ‰ of the requests use one of the last ten keys
	}{Size: 100, Keys: 10, Requests: 10000, Shortest: 200 * time.Microsecond, Longest: 2 * time.Millisecond}
	if err := assign(&o, p.Options); err != nil {
		return nil, err
	}
	if o.Keys <= 0 || o.Requests <= 0 || o.Longest <= o.Shortest {
		return nil, fmt.Errorf("keys %d, requests %d, %v to %v: must be positive, and a range", o.Keys, o.Requests, o.Shortest, o.Longest)
	}
	chance := newStream(seed, "requests")
	noise, drift := logNormal(o.Noise), logNormal(o.Drift)
	means := make([]time.Duration, o.Keys)
	for i := range means {
		means[i] = o.Shortest + chance.below(o.Longest-o.Shortest)
	}
	history := policies.NewHistory(o.Size, 0)
	recent := make([]int, 0, 10)
	bounds := []int{7, 15, 20}
	within := make([]int, len(bounds))
	for i := range o.Requests {
		key := int(chance.below(time.Duration(o.Keys)))
		if len(recent) == cap(recent) && chance.one(o.Recent) {
			key = recent[chance.below(time.Duration(len(recent)))]
		} else if len(recent) < cap(recent) {
			recent = append(recent, key)
		} else {
			recent[i%len(recent)] = key
		}
		means[key] = min(max(drift.times(means[key], chance), o.Shortest/2), 2*o.Longest)
		cost := noise.times(means[key], chance)
		predicted, _ := history.Predict(uint64(key)+1, false)
		off := predicted - cost
		for b, bound := range bounds {
			if max(off, -off) <= cost*time.Duration(bound)/100 {
				within[b]++
			}
		}
		history.Learn(uint64(key)+1, cost, false)
	}
	m := map[string]float64{}
	for b, bound := range bounds {
		m[fmt.Sprintf("within_%d", bound)] = 100 * float64(within[b]) / float64(o.Requests)
	}
	return Metrics{"": m}, nil
}
