package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pegasus/backend/fits"
	"pegasus/cluster/claims"
	"pegasus/configs"
	"pegasus/policies"
	"pegasus/vcpu"
)

// MovableAnnotation is the annotation of pods that permit to be evicted for the balance of the load, with the value
// "true".
const MovableAnnotation = claims.DriverName + "/movable"

// Advice has moves of claims that even the load of the accelerators.
type Advice struct {
	Window time.Duration `json:"window_ns"` // over which demand was recorded
	Moves  []Move        `json:"moves"`
	Loads  []Load        `json:"loads"` // of the accelerators that the moves change
	Notes  []string      `json:"notes"`
}

// Move is a claim that should be on another accelerator.
type Move struct {
	Namespace string   `json:"namespace"`
	Claim     string   `json:"claim"`
	Pods      []string `json:"pods"`
	From      Place    `json:"from"`
	To        Place    `json:"to"`
	Demand    float64  `json:"demand"`                // part of an accelerator that it would use alone
	Why       string   `json:"not_movable,omitempty"` // why its pods must not be evicted
}

// Place is an accelerator of a node.
type Place struct {
	Node        string `json:"node"`
	Accelerator string `json:"accelerator"`
}

func (p Place) String() string { return p.Node + "/" + p.Accelerator }

// Load is the load of an accelerator without and with the moves.
type Load struct {
	Place
	Before  float64           `json:"demand_before"` // Σ of its domains' demands: more than 1 is more than there is
	After   float64           `json:"demand_after"`
	Domains []PredictedDomain `json:"domains"`
}

// PredictedDomain has the simulator's figures of a domain without and with the moves.
type PredictedDomain struct {
	Domain string     `json:"domain"` // NAMESPACE/CLAIM, or the name of a domain without a claim
	Before *Predicted `json:"before,omitempty"`
	After  *Predicted `json:"after,omitempty"`
}

// Predicted has the simulator's figures of a domain on an accelerator.
type Predicted struct {
	Place
	Used    float64 `json:"used"` // part of the accelerator's time, 0 to 1
	WaitP99 int64   `json:"wait_p99_ns"`
}

// Limits of the advice.
const (
	leastDemand  = 0.01                   // of a domain that counts
	leastExcess  = 1.05                   // load of an accelerator from which claims are moved
	leastGain    = 0.05                   // by which a move lowers the greater load of both accelerators
	leastBenefit = 0.1                    // by which it raises the sum of the parts of their demands that domains get
	mostOptions  = 16                     // that are simulated for each move
	simulated    = 500 * time.Millisecond // of each accelerator
)

// Recorder records the demand of domains over several states of a cluster.
type Recorder struct {
	begin, end map[string]MeasuredDomain
	spent      map[string]Spent
	samples    map[string]int
	from, to   time.Time
}

// Record adds a state. A domain is counted in those states in which its node was measured.
func (r *Recorder) Record(s *State) {
	if r.begin == nil {
		r.begin, r.end, r.spent, r.samples = map[string]MeasuredDomain{}, map[string]MeasuredDomain{}, map[string]Spent{}, map[string]int{}
		r.from = s.At
	}
	r.to = s.At
	for i := range s.Hosts {
		h := &s.Hosts[i]
		if h.Measured == nil {
			continue
		}
		for _, m := range h.Measured.Domains {
			if m.Accelerator == "" || !m.Timed {
				continue
			}
			key := h.Node + "/" + m.Name
			if has, ok := r.begin[key]; !ok || m.Calls < has.Calls { // the daemon has counted anew
				r.begin[key] = m
			}
			r.end[key] = m
			sum := r.spent[key]
			sum.Accelerator, sum.Idle = sum.Accelerator+m.Spent.Accelerator, sum.Idle+m.Spent.Idle
			sum.Turn, sum.VCPU = sum.Turn+m.Spent.Turn, sum.VCPU+m.Spent.VCPU
			r.spent[key] = sum
			r.samples[key]++
		}
	}
}

// demand returns the mean length of a domain's requests, 0 if there were none, and the part of the time that it would
// compute without other domains. It reports false for a domain that was not recorded.
func (r *Recorder) demand(node, name string) (kernel time.Duration, demand float64, ok bool) {
	key := node + "/" + name
	end, ok := r.end[key]
	if !ok {
		return 0, 0, false
	}
	begin := r.begin[key]
	engine, calls := end.Engine-begin.Engine, end.Calls-begin.Calls
	if calls <= 0 { // a single state, or no call ended since: the mean of all its calls
		engine, calls = end.Engine, end.Calls
	}
	if calls > 0 {
		kernel = time.Duration(engine / calls * 1e9)
	}
	s := r.spent[key]
	switch {
	case s.Accelerator > 0:
		demand = s.Accelerator / (s.Accelerator + s.Idle)
	case s.Turn > 0: // it waits and gets nothing
		demand = s.Turn / (s.Turn + s.Idle)
	}
	return kernel, demand, true
}

// candidate is a domain with its demand.
type candidate struct {
	*Domain
	claim  *resourceapi.ResourceClaim // nil: it has none
	kernel time.Duration
	demand float64
}

// seat is an accelerator with its domains, as moves change it.
type seat struct {
	*Accelerator
	domains []*candidate
	usable  bool // claims may be moved to it
}

func (s *seat) load() (sum float64) {
	for _, d := range s.domains {
		sum += d.demand
	}
	return sum
}

func (s *seat) place() Place { return Place{s.Node, s.Name} }

// free returns whether a claim's capacities are free.
func (s *seat) free(d *Domain) bool {
	credits, memory := s.Credits.All, s.Memory.All
	seats := s.Seats.All
	for _, o := range s.domains {
		if o.Claim != "" {
			credits, memory, seats = credits-o.Credits, memory-o.Memory, seats-1
		}
	}
	return credits >= d.Credits && memory >= d.Memory && seats > 0
}

// Advise returns at most most moves that even the recorded load: from accelerators whose domains demand more time than
// there is, to those of the same type and model with free capacity. Each move lowers the greater of the two loads, and
// by the simulator's figures lets the domains have more of their demands.
func Advise(s *State, f *Fleet, r *Recorder, most int) (*Advice, error) {
	a := &Advice{Window: r.to.Sub(r.from), Moves: []Move{}, Loads: []Load{}, Notes: []string{}}
	seats, unrecorded := seats(s, f, r)
	if unrecorded > 0 {
		a.Notes = append(a.Notes, fmt.Sprintf("%s without measured time: no demand was counted for them", plural(unrecorded, "domain")))
	}
	before := map[Place][]*candidate{}
	for _, seat := range seats {
		before[seat.place()] = slices.Clone(seat.domains)
	}
	for len(a.Moves) < most {
		o, err := best(seats)
		if err != nil {
			return nil, err
		}
		d := o.d
		if d == nil {
			break
		}
		a.Moves = append(a.Moves, Move{Namespace: d.Namespace, Claim: d.Claim, Pods: d.Pods, From: o.from.place(), To: o.to.place(), Demand: d.demand})
		o.from.domains = without(o.from.domains, d)
		o.to.domains = append(o.to.domains, d)
	}
	if len(a.Moves) == 0 {
		over := 0
		for _, seat := range seats {
			if seat.load() > leastExcess {
				over++
			}
		}
		switch {
		case over > 0:
			a.Notes = append(a.Notes, fmt.Sprintf("%s with more demand than time, and no free place of the same model where a claim of it would do better, at no other's cost", plural(over, "accelerator")))
		default:
			a.Notes = append(a.Notes, "no accelerator has more demand than time: a move would not make any domain faster")
		}
		return a, nil
	}
	a.Notes = append(a.Notes, "the scheduler places a pod anew by its own rules, such as node selectors, and not necessarily at the place above")
	return a, a.predict(seats, before)
}

// seats returns the accelerators with their recorded domains, and the number of domains without a record.
func seats(s *State, f *Fleet, r *Recorder) (all []*seat, unrecorded int) {
	byUID := map[string]*resourceapi.ResourceClaim{}
	for i := range s.Claims {
		byUID[claims.Name(s.Claims[i].UID)] = &s.Claims[i]
	}
	measured := map[string]bool{}
	for i := range s.Hosts {
		measured[s.Hosts[i].Node] = s.Hosts[i].Measured != nil
	}
	domains := f.byDevice()
	for i := range f.Accelerators {
		a := &f.Accelerators[i]
		seat := &seat{Accelerator: a, usable: len(a.Taints) == 0 && measured[a.Node]}
		for _, d := range domains[a.position] {
			c := &candidate{Domain: d}
			if d.Claim != "" {
				c.claim = byUID[d.Name]
			}
			var ok bool
			if c.kernel, c.demand, ok = r.demand(d.Node, d.Name); !ok && d.State != Absent {
				unrecorded++
			}
			seat.domains = append(seat.domains, c)
		}
		all = append(all, seat)
	}
	return all, unrecorded
}

// option is a possible move.
type option struct {
	from, to *seat
	d        *candidate
	gain     float64 // of the sum of squared loads
}

// options returns the moves of claims that lower the greater of two loads, those first that even them most.
func options(seats []*seat) (all []option) {
	for _, from := range seats {
		load := from.load()
		if load <= leastExcess {
			continue
		}
		for _, to := range seats {
			other := to.load()
			if !to.usable || to.Type != from.Type || to.Model != from.Model || other >= load {
				continue
			}
			for _, c := range from.domains {
				if c.claim != nil && c.demand >= leastDemand && max(load-c.demand, other+c.demand) <= load-leastGain && to.free(c.Domain) {
					all = append(all, option{from, to, c, 2 * c.demand * (load - other - c.demand)})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b option) int { return cmp.Compare(b.gain, a.gain) })
	return all
}

// best returns the option by which the domains get most of their demands, as the simulator predicts it; a nil
// candidate: there is none that is worth a move, and leaves the domains at its target their present parts, or their floors.
func best(seats []*seat) (chosen option, err error) {
	most := leastBenefit
	all := options(seats)
	for _, o := range all[:min(len(all), mostOptions)] {
		from, to := *o.from, *o.to
		from.domains, to.domains = without(o.from.domains, o.d), append(slices.Clone(o.to.domains), o.d)
		var was, is float64
		harm := false
		for _, pair := range [][2]*seat{{o.from, &from}, {o.to, &to}} {
			before, err := pair[0].simulate()
			if err != nil {
				return option{}, err
			}
			after, err := pair[1].simulate()
			if err != nil {
				return option{}, err
			}
			was += satisfaction(pair[0].domains, before)
			is += satisfaction(pair[1].domains, after)
			for _, d := range o.to.domains {
				if b, a := before[d.String()], after[d.String()]; pair[1] == &to && b != nil && a != nil {
					harm = harm || a.Used < 0.9*min(b.Used, cmp.Or(d.Floor, b.Used))
				}
			}
		}
		if !harm && is-was > most+1e-9 {
			most, chosen = is-was, o
		}
	}
	return chosen, nil
}

func without(all []*candidate, d *candidate) []*candidate {
	return slices.DeleteFunc(slices.Clone(all), func(o *candidate) bool { return o == d })
}

// satisfaction returns the sum of the parts of their demands that domains get.
func satisfaction(all []*candidate, figures map[string]*Predicted) (sum float64) {
	for _, d := range all {
		if p := figures[d.String()]; p != nil {
			sum += min(p.Used/d.demand, 1)
		}
	}
	return sum
}

// predict simulates the accelerators that the moves change, without and with the moves.
func (a *Advice) predict(seats []*seat, before map[Place][]*candidate) error {
	changed := map[Place]bool{}
	for _, m := range a.Moves {
		changed[m.From], changed[m.To] = true, true
	}
	for _, s := range seats {
		if !changed[s.place()] {
			continue
		}
		l := Load{Place: s.place(), After: s.load(), Domains: []PredictedDomain{}}
		was := &seat{Accelerator: s.Accelerator, domains: before[s.place()]}
		l.Before = was.load()
		if err := l.simulate(was, s); err != nil {
			return err
		}
		a.Loads = append(a.Loads, l)
	}
	return nil
}

func (l *Load) simulate(was, is *seat) error {
	rows := map[string]*PredictedDomain{}
	for _, s := range []*seat{was, is} {
		figures, err := s.simulate()
		if err != nil {
			return fmt.Errorf("simulate %s: %w", s.place(), err)
		}
		for name, p := range figures {
			row := of(rows, name)
			if row.Domain = name; s == was {
				row.Before = p
			} else {
				row.After = p
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		l.Domains = append(l.Domains, *rows[name])
	}
	return nil
}

// simulate returns the simulator's figures of the domains with demand, by name.
func (s *seat) simulate() (map[string]*Predicted, error) {
	settings := configs.Default().Accelerators[0]
	settings.Name = s.Name
	settings.Policy, settings.Mode = cmp.Or(s.Policy, settings.Policy), cmp.Or(s.Mode, settings.Mode)
	a := fits.Accelerator{Settings: settings, Choice: policies.Choice{Policy: settings.Policy, Options: policies.Options{Values: settings.Params}}}
	var names []string
	for _, d := range s.domains {
		if d.demand < leastDemand {
			continue
		}
		one := fits.Domain{Settings: d.settings(), Kernel: d.kernel, Demand: d.demand}
		one.Share = a.Choice.Share(vcpu.Domain{Credits: vcpu.Credits(one.Settings.Credits)})
		a.Domains = append(a.Domains, one)
		names = append(names, d.String())
	}
	figures, _, err := a.Simulate(simulated)
	if err != nil {
		return nil, err
	}
	all := map[string]*Predicted{}
	for i, name := range names {
		all[name] = &Predicted{Place: s.place(), Used: figures[i].Used, WaitP99: int64(figures[i].WaitP99)}
	}
	return all, nil
}

// settings returns the settings of the domain, as far as they are in its claim.
func (c *candidate) settings() configs.Domain {
	d := configs.Default().Template
	d.Name = "d"
	d.Credits = int(min(max(c.Credits, 1), int64(vcpu.MaxCredits)))
	if c.claim == nil {
		return d
	}
	plan, err := claims.Plan(c.claim, nil)
	if err != nil { // the driver refuses the claim, too, so that its domain has no demand
		return d
	}
	for _, key := range slices.Sorted(maps.Keys(plan.Settings)) {
		if !strings.HasPrefix(key, "memory") && key != "accelerator" {
			d.Give(key, plan.Settings[key]) // one that a later release has stays as it is by default
		}
	}
	return d
}

// Check sets Why of the moves whose pods do not permit to be evicted. get returns a pod.
func (a *Advice) Check(get func(namespace, name string) (*corev1.Pod, error)) {
	for i := range a.Moves {
		m := &a.Moves[i]
		if len(m.Pods) == 0 {
			m.Why = "no pod has reserved the claim"
		}
		for _, name := range m.Pods {
			p, err := get(m.Namespace, name)
			if err == nil {
				err = movable(p)
			}
			if err != nil {
				m.Why = fmt.Sprintf("pod %s: %v", name, err)
				break
			}
		}
	}
}

// movable returns an error with the reason for which a pod must not be evicted.
func movable(p *corev1.Pod) error {
	switch {
	case p.Annotations[MovableAnnotation] != "true":
		return fmt.Errorf("it does not have the annotation %s: \"true\"", MovableAnnotation)
	case metav1.GetControllerOf(p) == nil:
		return errors.New("no controller would make it anew")
	case metav1.GetControllerOf(p).Kind == "DaemonSet":
		return errors.New("its DaemonSet would make it anew on the same node")
	}
	return nil
}

func (a *Advice) write(b *strings.Builder) {
	fmt.Fprintf(b, "advice, by the demand of the last %v:\n", a.Window.Round(time.Second))
	for i := range a.Moves {
		m := &a.Moves[i]
		fmt.Fprintf(b, "  move %s (%s) from %s to %s: it would use %s of an accelerator alone\n", plain(m.Namespace+"/"+m.Claim), plain(list(m.Pods)), plain(m.From.String()), plain(m.To.String()), percent(m.Demand))
		if m.Why != "" {
			fmt.Fprintf(b, "    not movable: %s\n", plain(m.Why))
		}
	}
	for _, note := range a.Notes {
		fmt.Fprintf(b, "  %s\n", plain(note))
	}
	for i := range a.Loads {
		l := &a.Loads[i]
		fmt.Fprintf(b, "\n%s: demand %s of its time now, %s after the moves\n", plain(l.Place.String()), percent(l.Before), percent(l.After))
		if len(l.Domains) == 0 {
			continue
		}
		t := table{head: []string{"DOMAIN", ">USES NOW", ">WAIT P99", ">USES AFTER", ">WAIT P99"}}
		for _, d := range l.Domains {
			row := []string{d.Domain}
			for _, p := range []*Predicted{d.Before, d.After} {
				if p == nil {
					row = append(row, "", "")
				} else {
					row = append(row, percent(p.Used), time.Duration(p.WaitP99).Round(10*time.Microsecond).String())
				}
			}
			t.add(row...)
		}
		t.write(b)
	}
	if len(a.Loads) > 0 {
		b.WriteString("uses and waits are the simulator's, with the recorded demand\n")
	}
}
