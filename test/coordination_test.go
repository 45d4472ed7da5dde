package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/policies"
	"pegasus/vcpu"
)

// runNice starts a sharer's program with a nice value.
func (h *host) runNice(s sharer, nice int) {
	h.t.Helper()
	steps := max(1, math.Round(s.kernelMs*stepsPerMs(h.t)))
	background(h.t.(*testing.T), h.guest(s.name, "nice", "-n", fmt.Sprint(nice), built(h.t, "bench/busy"), "--quiet",
		"--seconds", "3600", "--queue", s.queue(), "--steps", fmt.Sprint(steps), "--no-check"))
}

// The accelerator is shared as the host shares its CPUs: between processes of one cgroup by their nice values.
// Announced schedules move windows, not shares.
func TestAcceleratorFollowsTheCPUs(t *testing.T) {
	plain, nice := sharer{"plain", 100, 3}, sharer{"nice", 1000, 3}
	h := startHost(t, shareConfig("xc", "production", []sharer{plain, nice}))
	h.run(plain)
	h.runNice(nice, 5)
	h.await([]sharer{plain, nice})
	weight := map[string]float64{"plain": 256, "nice": 84} // 1.25 to the power of 5 is 3
	want := map[string]float64{"plain": 100 * 256. / 340, "nice": 100 * 84. / 340}
	eventually(t, soon, "the daemon knows how nice its guests are", func() bool {
		d := h.domains()
		return d["plain"].CPUWeight == 256 && d["nice"].CPUWeight == 84
	})
	if d := h.domains(); math.Abs(100*d["nice"].Entitled-want["nice"]) > 0.1 {
		t.Errorf("the nice domain is entitled to %.2f", d["nice"].Entitled)
	}
	for _, c := range []struct {
		policy    string
		tolerance float64
	}{{"xc", 2}, {"slaf", 2}, {"augc", 4}, {"cosched", 12}} {
		h.pegasus("policy", c.policy)
		time.Sleep(time.Second)
		t.Log(c.policy)
		checkShares(t, h.over(4*time.Second), want, c.tolerance)
	}

	// Samples arrive while policies read them, of all domains, and contain the host's settings.
	id := h.names("a0")
	samples := 0
	h.records(time.Second, func(r policies.Record) {
		if r.Event == nil || r.Event.Kind != policies.Observe {
			return
		}
		samples++
		s := r.Event.Sample
		if s.Quality != vcpu.Shadow || len(s.Domains) != 2 {
			t.Fatalf("a sample has quality %d and %d domains", s.Quality, len(s.Domains))
		}
		for _, d := range s.Domains {
			if len(d.VCPUs) == 0 || float64(d.Weight) != weight[id[d.ID]] {
				t.Fatalf("domain %q: %+v", id[d.ID], d)
			}
		}
	})
	if samples < 10 {
		t.Errorf("%d samples in a second, of about 33", samples)
	}
}

// Every policy reports the reason of its last decision, with the domains' names, and the cost of its decisions.
func TestPoliciesExplain(t *testing.T) {
	sharers := []sharer{{"web", 256, 2}, {"batch", 512, 2}}
	h := startHost(t, shareConfig("none", "production", sharers))
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	for _, name := range policies.Names() {
		h.pegasus("policy", name)
		var said string
		eventually(t, soon, name+" decides", func() bool {
			var all []control.Accelerator
			if err := json.Unmarshal(h.pegasus("policy", "--explain", "--json"), &all); err != nil {
				t.Fatal(err)
			}
			a := all[0]
			said = a.Explanation
			return a.DecisionCost.Count > 0 && a.DecisionCost.P50 > 0 && a.DecisionCost.P99 >= a.DecisionCost.P50 &&
				strings.HasPrefix(said, name) && (strings.Contains(said, "domain web") || strings.Contains(said, "domain batch"))
		})
		t.Log(said)
		if table := string(h.pegasus("policy", "--explain")); !strings.Contains(table, name) || strings.ContainsFunc(said, func(r rune) bool { return r == '\n' }) {
			t.Errorf("%s: %q in %q", name, said, table)
		}
	}
}

// Policies that estimate costs receive a description of waiting requests: kernel, size, and whether a similar one was
// measured before.
func TestRequestsAreTold(t *testing.T) {
	sharers := []sharer{{"short", 256, 1}, {"long", 256, 4}}
	h := startHost(t, shareConfig("drr", "production", sharers))
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	id := h.names("a0")
	keys, requests := make(map[string]map[uint64]bool), 0
	h.records(time.Second, func(r policies.Record) {
		if r.Event == nil || r.Event.Kind != policies.Head || r.Event.Request.Seq == 0 || !r.Event.Request.Known {
			return
		}
		q, name := r.Event.Request, id[r.Event.Domain.ID]
		if q.Key == 0 || q.Threads == 0 || q.Bytes != 0 || q.Predicted <= 0 {
			t.Fatalf("domain %q: %+v", name, q)
		}
		if keys[name] == nil {
			keys[name] = make(map[uint64]bool)
		}
		keys[name][q.Key] = true
		requests++
	})
	if requests < 20 || len(keys["short"]) != 1 || len(keys["long"]) != 1 {
		t.Errorf("%d requests with keys %v, want one for each domain, which has one kernel", requests, keys)
	}
}

// records calls each with every trace record for a time.
func (h *host) records(d time.Duration, each func(policies.Record)) {
	h.t.Helper()
	for in := bufio.NewScanner(bytes.NewReader(h.pegasus("trace", "--seconds", fmt.Sprint(d.Seconds())))); in.Scan(); {
		var r policies.Record
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			h.t.Fatal(err)
		}
		each(r)
	}
}

// names returns the domains of an accelerator by their IDs there, which count from 1.
func (h *host) names(accelerator string) map[vcpu.ID]string {
	h.t.Helper()
	names := make(map[vcpu.ID]string)
	for _, a := range h.accelerators() {
		if a.Name == accelerator {
			for i, name := range a.Domains {
				names[vcpu.ID(i+1)] = name
			}
		}
	}
	return names
}
