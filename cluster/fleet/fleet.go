// Package fleet shows the accelerators of a cluster: sold and free capacity, the domains of claims with their entitled
// and measured shares, and the hosts where shares are not kept, each with the reasons. It advises which claims to move.
//
// View and Advise are pure functions of a State, which a Reader reads from the API server and from the drivers'
// metrics. Nothing changes but by Mover, which evicts pods that permit it.
//
// Callers: pegasus-fleet.
//
// Trust boundary: slices and metrics are written by the nodes, claims and pods by any user of a namespace. Their texts
// are printed, never interpreted; the answer of a node is bounded in size and time.
package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"pegasus/cluster/claims"
	nodeslices "pegasus/cluster/slices"
	"pegasus/policies"
)

// State has the objects of the API server and the metrics of the nodes.
type State struct {
	At     time.Time
	Slices []resourceapi.ResourceSlice
	Claims []resourceapi.ResourceClaim
	Hosts  []HostState // the nodes with a driver's pod
}

// HostState is a node's driver as it answered.
type HostState struct {
	Node, Pod string
	Measured  *Measured // nil: not measured
	Why       string    // the reason for which there are no metrics
}

// Fleet is the view of a cluster. In JSON, memory is bytes, and shares are fractions of 1.
type Fleet struct {
	At           time.Time     `json:"at"`
	Sum          Sum           `json:"sum"`
	Hosts        []Host        `json:"hosts"`
	Accelerators []Accelerator `json:"accelerators"`
	Domains      []Domain      `json:"domains"`
	Advice       *Advice       `json:"advice,omitempty"`
}

// Sum has sums over all accelerators.
type Sum struct {
	Accelerators int      `json:"accelerators"`
	Hosts        int      `json:"hosts"`
	NotKept      int      `json:"hosts_not_kept"`
	Unknown      int      `json:"hosts_unknown"`
	Domains      int      `json:"domains"`
	Credits      Capacity `json:"credits"`
	Memory       Capacity `json:"memory"`
}

// Capacity is a capacity that claims consume. Free is never negative: Sold is more than All where an accelerator
// offers less than it did when claims were allocated.
type Capacity struct {
	All  int64 `json:"all"`
	Sold int64 `json:"sold"`
	Free int64 `json:"free"`
}

func (c *Capacity) count() { c.Free = max(c.All-c.Sold, 0) }

func (c *Capacity) add(o Capacity) {
	c.All, c.Sold, c.Free = c.All+o.All, c.Sold+o.Sold, c.Free+o.Free
}

// Accelerator is a device of the cluster.
type Accelerator struct {
	Node     string   `json:"node"`
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Model    string   `json:"model"`
	Policy   string   `json:"policy"`
	Mode     string   `json:"mode"`
	Release  string   `json:"release"`
	Taints   []string `json:"taints"` // key, or key=value, with the effect
	Credits  Capacity `json:"credits"`
	Memory   Capacity `json:"memory"`
	Seats    Capacity `json:"seats"`
	Busy     *float64 `json:"busy,omitempty"`        // part of the recent time
	InUse    *int64   `json:"memory_used,omitempty"` // bytes
	position `json:"-"`
}

// position identifies a device.
type position struct{ Node, Device string }

// String returns NODE/DEVICE.
func (a *Accelerator) String() string { return a.Node + "/" + a.Name }

// Domain is a domain on an accelerator: of a claim, or another one, which takes time beside the sold credits.
type Domain struct {
	Namespace string      `json:"namespace,omitempty"` // of the claim
	Claim     string      `json:"claim,omitempty"`     // empty: a domain without a claim
	Pods      []string    `json:"pods,omitempty"`
	Node      string      `json:"node"`
	On        string      `json:"accelerator"`
	Name      string      `json:"domain"`
	State     DomainState `json:"state"`
	Credits   int64       `json:"credits"`
	Floor     float64     `json:"floor"` // part of the accelerator that its credits are of those that are sold; 0: no claim
	Memory    int64       `json:"memory"`
	Entitled  *float64    `json:"entitled,omitempty"` // as the node's daemon reports it
	Share     *float64    `json:"share,omitempty"`    // measured part of the accelerator's used time
	Waiting   *float64    `json:"waiting,omitempty"`  // part of the recent time that it waited for its turn
	InUse     *int64      `json:"memory_used,omitempty"`
}

// String identifies the domain.
func (d *Domain) String() string {
	if d.Claim == "" {
		return d.Name
	}
	return d.Namespace + "/" + d.Claim
}

// DomainState is the state of a domain on its node.
type DomainState string

// States of domains.
const (
	Present    DomainState = "present"    // the daemon has it
	Absent     DomainState = "absent"     // the daemon does not have it: no pod of the claim has started
	Unmeasured DomainState = "unmeasured" // the node's metrics are not available
)

// Kept reports whether a host keeps the shares of its domains.
type Kept string

// Values of Kept.
const (
	Yes     Kept = "yes"
	No      Kept = "no"
	Unknown Kept = "unknown"
)

// Host is a node with a driver, or with a slice of one.
type Host struct {
	Node    string   `json:"node"`
	Driver  string   `json:"driver,omitempty"` // its pod
	Kept    Kept     `json:"shares_kept"`
	Reasons []string `json:"reasons"`
}

// View returns the view of a state.
func View(s *State) *Fleet {
	f := &Fleet{At: s.At, Hosts: []Host{}, Accelerators: accelerators(s.Slices), Domains: []Domain{}}
	at := map[position]*Accelerator{}
	for i := range f.Accelerators {
		at[f.Accelerators[i].position] = &f.Accelerators[i]
	}
	hosts := map[string]*HostState{}
	for i := range s.Hosts {
		hosts[s.Hosts[i].Node] = &s.Hosts[i]
	}
	nodes := map[string]string{} // of pools
	for i := range s.Slices {
		nodes[s.Slices[i].Spec.Pool.Name] = node(&s.Slices[i])
	}
	claimed := map[string]bool{} // domains of claims, by node and name
	for i := range s.Claims {
		for _, d := range sold(&s.Claims[i], nodes) {
			claimed[d.Node+"/"+d.Name] = true
			d.measure(hosts[d.Node])
			if a := at[position{d.Node, d.On}]; a != nil {
				a.Credits.Sold += d.Credits
				a.Memory.Sold += d.Memory
				a.Seats.Sold++
			}
			f.Domains = append(f.Domains, d)
		}
	}
	for i := range s.Hosts {
		f.Domains = append(f.Domains, others(&s.Hosts[i], claimed)...)
	}
	for i := range f.Accelerators {
		if a := &f.Accelerators[i]; hosts[a.Node] != nil {
			a.measure(hosts[a.Node].Measured)
		}
	}
	for i := range f.Domains { // the sold credits are complete
		if d := &f.Domains[i]; d.Claim != "" && at[position{d.Node, d.On}] != nil {
			c := at[position{d.Node, d.On}].Credits
			d.Floor = ratio(d.Credits, max(c.All, c.Sold))
		}
	}
	slices.SortFunc(f.Domains, func(a, b Domain) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.On, b.On), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Name, b.Name))
	})
	for i := range f.Accelerators {
		a := &f.Accelerators[i]
		a.Credits.count()
		a.Memory.count()
		a.Seats.count()
	}
	f.hosts(hosts, f.byDevice())
	f.sum()
	return f
}

// byDevice returns the domains of each device.
func (f *Fleet) byDevice() map[position][]*Domain {
	all := map[position][]*Domain{}
	for i := range f.Domains {
		d := &f.Domains[i]
		all[position{d.Node, d.On}] = append(all[position{d.Node, d.On}], d)
	}
	return all
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// node returns the node of a slice.
func node(s *resourceapi.ResourceSlice) string {
	if s.Spec.NodeName != nil {
		return *s.Spec.NodeName
	}
	return s.Spec.Pool.Name
}

// accelerators returns the devices of the latest generation of each pool, sorted.
func accelerators(all []resourceapi.ResourceSlice) []Accelerator {
	latest := map[string]int64{}
	for i := range all {
		p := all[i].Spec.Pool
		latest[p.Name] = max(latest[p.Name], p.Generation)
	}
	devices := []Accelerator{}
	for i := range all {
		s := &all[i]
		if s.Spec.Driver != claims.DriverName || s.Spec.Pool.Generation < latest[s.Spec.Pool.Name] {
			continue
		}
		for j := range s.Spec.Devices {
			devices = append(devices, accelerator(node(s), &s.Spec.Devices[j]))
		}
	}
	slices.SortFunc(devices, func(a, b Accelerator) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name)) })
	return devices
}

func accelerator(node string, d *resourceapi.Device) Accelerator {
	attribute := func(name string) string {
		if v := d.Attributes[resourceapi.QualifiedName(name)].StringValue; v != nil {
			return *v
		}
		return ""
	}
	capacity := func(name string) Capacity {
		q := d.Capacity[resourceapi.QualifiedName(name)].Value
		return Capacity{All: q.Value()}
	}
	a := Accelerator{Node: node, Name: d.Name, Type: attribute("type"), Model: attribute("model"), Policy: attribute("policy"), Mode: attribute("mode"),
		Release: attribute("release"), Taints: []string{}, Credits: capacity(claims.Credits), Memory: capacity(claims.Memory), Seats: capacity(claims.Domains),
		position: position{node, d.Name}}
	for _, t := range d.Taints {
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		a.Taints = append(a.Taints, fmt.Sprintf("%s:%s", text, t.Effect))
	}
	return a
}

func (a *Accelerator) measure(m *Measured) {
	if got := m.accelerator(a.Name); got != nil {
		used := int64(got.Used)
		a.Busy, a.InUse = &got.Busy, &used
		a.Policy, a.Mode = cmp.Or(got.Policy, a.Policy), cmp.Or(got.Mode, a.Mode)
	}
}

// sold returns the domains that an allocated claim has, one for each device of the driver.
func sold(c *resourceapi.ResourceClaim, nodes map[string]string) (all []Domain) {
	if c.Status.Allocation == nil {
		return nil
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != claims.DriverName || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		consumed := func(name string) int64 {
			q := r.ConsumedCapacity[resourceapi.QualifiedName(name)]
			return q.Value()
		}
		d := Domain{Namespace: c.Namespace, Claim: c.Name, Node: cmp.Or(nodes[r.Pool], r.Pool), On: r.Device, Name: claims.Name(c.UID),
			Credits: consumed(claims.Credits), Memory: consumed(claims.Memory), State: Unmeasured}
		for _, o := range c.Status.ReservedFor {
			if o.Resource == "pods" && o.APIGroup == "" {
				d.Pods = append(d.Pods, o.Name)
			}
		}
		all = append(all, d)
	}
	return all
}

// measure adds the metrics of the node.
func (d *Domain) measure(h *HostState) {
	if h == nil || h.Measured == nil {
		return
	}
	m := h.Measured.domain(d.Name)
	if m == nil {
		d.State = Absent
		return
	}
	d.take(m)
}

func (d *Domain) take(m *MeasuredDomain) {
	used := int64(m.Memory)
	d.State, d.InUse = Present, &used
	if m.Accelerator == "" { // no process has used it yet
		return
	}
	d.Entitled, d.Share = &m.Entitled, &m.Share
	if m.Timed {
		d.Waiting = &m.Spent.Turn
	}
}

// others returns the domains of a host that no claim has.
func others(h *HostState, claimed map[string]bool) (all []Domain) {
	if h.Measured == nil {
		return nil
	}
	for i := range h.Measured.Domains {
		m := &h.Measured.Domains[i]
		if claimed[h.Node+"/"+m.Name] {
			continue
		}
		d := Domain{Node: h.Node, On: m.Accelerator, Name: m.Name, Credits: int64(m.Credits)}
		d.take(m)
		all = append(all, d)
	}
	return all
}

// hosts judges the hosts.
func (f *Fleet) hosts(states map[string]*HostState, domains map[position][]*Domain) {
	names, devices := map[string]bool{}, map[string][]*Accelerator{}
	for node := range states {
		names[node] = true
	}
	for i := range f.Accelerators {
		a := &f.Accelerators[i]
		names[a.Node] = true
		devices[a.Node] = append(devices[a.Node], a)
	}
	for _, name := range sorted(names) {
		h := Host{Node: name, Kept: Yes, Reasons: []string{}}
		state := states[name]
		if state == nil {
			h.Kept = Unknown
			h.Reasons = append(h.Reasons, "no pod of the driver runs on the node, and its slice is left")
		} else {
			h.Driver = state.Pod
			if state.Why != "" {
				h.Kept = Unknown
				h.Reasons = append(h.Reasons, state.Why)
			}
			if state.Measured != nil && state.Measured.Refused {
				h.Reasons = append(h.Reasons, "the last reload of the daemon's configuration was refused; `pegasus doctor` gives the line")
			}
		}
		for _, a := range devices[name] {
			if why := judge(a, state, domains[a.position]); len(why) > 0 {
				h.Kept = No
				h.Reasons = append(h.Reasons, why...)
			}
		}
		f.Hosts = append(f.Hosts, h)
	}
}

// Limits by which a domain counts as one that gets too little, as in the alert PegasusShareBelowEntitlement.
const (
	leastWait = 0.05 // part of its time that it waits for its turn
	leastPart = 0.95 // of its entitlement
)

// judge returns the reasons for which an accelerator does not keep the shares of its domains.
func judge(a *Accelerator, h *HostState, domains []*Domain) (why []string) {
	add := func(format string, args ...any) { why = append(why, a.Name+": "+fmt.Sprintf(format, args...)) }
	for _, t := range a.Taints {
		if strings.HasPrefix(t, nodeslices.AwayTaint+":") || strings.HasPrefix(t, nodeslices.AwayTaint+"=") {
			add("the daemon does not answer its driver; gates are open, and shares are not kept")
		}
	}
	if a.Credits.Sold > a.Credits.All {
		add("%d of %d credits are sold, so that each is worth less; the accelerator offered more before", a.Credits.Sold, a.Credits.All)
	}
	if h == nil || h.Measured == nil {
		return why
	}
	if a.Policy != "" && !(policies.Choice{Policy: a.Policy}).Owes() {
		add("policy %s owes no domain a share; choose another one", a.Policy)
	}
	if m := h.Measured.accelerator(a.Name); m == nil {
		add("the slice has the accelerator, and the daemon does not")
	} else {
		if math.Abs(m.Uncharged) > 0 {
			add("%.3f s of its time were charged to no domain, which is an error of Pegasus: report it", m.Uncharged)
		}
		if m.Used > 0.95*m.Memory && m.Allocated >= m.Memory {
			add("its memory is full, and domains are evicted or refused")
		}
	}
	var outside []string
	var taken int64
	for _, d := range domains {
		if d.Claim == "" {
			outside = append(outside, d.Name)
			taken += d.Credits
		}
	}
	for _, d := range domains {
		if d.Entitled != nil && *d.Entitled > 0 && d.Floor > 0 && *d.Entitled < d.Floor-1e-6 {
			if len(outside) > 0 {
				add("domains without a claim (%s) have %d credits, so that %s is entitled to %s, below its floor of %s; set max_credits, or undeclared_domains = false",
					list(outside), taken, d, percent(*d.Entitled), percent(d.Floor))
			} else {
				add("%s is entitled to %s, below its floor of %s: its domain has other credits than its claim", d, percent(*d.Entitled), percent(d.Floor))
			}
		}
		m := h.Measured.domain(d.Name)
		if m == nil {
			continue
		}
		if m.Timed && m.Spent.Turn > leastWait && m.Share < leastPart*m.Entitled {
			add("%s gets %s of its entitled %s and waits for %s of its time; `pegasus why %s` on the node gives the reasons",
				d, percent(m.Share), percent(m.Entitled), percent(m.Spent.Turn), d.Name)
		}
		if len(m.Violated) > 0 {
			add("%s misses its objective %s; `pegasus why %s` on the node gives the causes", d, strings.Join(m.Violated, ", "), d.Name)
		}
	}
	return why
}

// list returns at most three names.
func list(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

func percent(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) }

func (f *Fleet) sum() {
	f.Sum.Accelerators, f.Sum.Hosts = len(f.Accelerators), len(f.Hosts)
	for i := range f.Accelerators {
		f.Sum.Credits.add(f.Accelerators[i].Credits)
		f.Sum.Memory.add(f.Accelerators[i].Memory)
	}
	for i := range f.Domains {
		if f.Domains[i].Claim != "" {
			f.Sum.Domains++
		}
	}
	for _, h := range f.Hosts {
		switch h.Kept {
		case No:
			f.Sum.NotKept++
		case Unknown:
			f.Sum.Unknown++
		}
	}
}

func sorted[T any](all map[string]T) []string { return slices.Sorted(maps.Keys(all)) }

// running reports whether a pod's containers may answer.
func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
}
