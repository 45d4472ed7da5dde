package sim

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"pegasus/vcpu"
)

// Limits of a file's numbers: sufficient for every feasible simulation, and small enough that a file cannot
// exhaust the machine before it is checked.
const (
	longest    = 10000 * time.Hour
	mostNumber = 1_000_000_000
	mostBytes  = Bytes(1e15)
	mostParts  = 100_000   // accelerators, CPUs, pieces of a copy
	mostAll    = 1_000_000 // threads
	mostSigma  = 3000      // ‰
	// MostSeeds bounds the runs of a scenario with different seeds.
	MostSeeds = 1_000_000
	leastPart = time.Millisecond
	shortest  = 100 * time.Nanosecond // "5" is 5 ns: hardly intended
)

// Upper limits of some numbers. Outstanding calls (ahead) are kept in memory.
var most = map[string]int64{"credits": int64(vcpu.MaxCredits), "credits_to": int64(vcpu.MaxCredits), "cpu_credits": int64(vcpu.MaxCredits), "slo": 1000, "bandwidth": 1000, "ahead": 100_000, "seeds": MostSeeds}

// ranges returns an error that names the number in v, a struct of a file, that is out of its range.
func ranges(what string, v any) error {
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		key := keyName(s.Type().Field(i))
		f := s.Field(i)
		if f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		switch {
		case f.Type() == reflect.TypeFor[time.Duration]():
			if d := time.Duration(f.Int()); d < 0 || d > longest {
				return fmt.Errorf("%s: %s = %q: 0s to %v is allowed", what, key, d, longest)
			} else if d > 0 && d < shortest {
				return fmt.Errorf("%s: %s = %q: at least %v, or none; durations are written \"1.5ms\"", what, key, d, shortest)
			}
		case f.Type() == reflect.TypeFor[Bytes]():
			if b := Bytes(f.Int()); b < 0 || b > mostBytes {
				return fmt.Errorf("%s: %s = %d: 0 to 1000 TB is allowed", what, key, b)
			}
		case f.Kind() == reflect.Int && key != "priority":
			limit := int64(mostNumber)
			if m, ok := most[key]; ok {
				limit = m
			}
			if n := f.Int(); n < 0 || n > limit {
				return fmt.Errorf("%s: %s = %d: 0 to %d is allowed", what, key, n, limit)
			}
		case f.Kind() == reflect.Float64 && f.Float() < 0:
			return fmt.Errorf("%s: %s = %v: must be more than 0", what, key, f.Float())
		case f.Kind() == reflect.Struct:
			within := what + ": " + key
			if s.Type().Field(i).Anonymous { // its keys are those of the outer struct
				within = what
			}
			if err := ranges(within, f.Interface()); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyName returns the key of a field in files.
func keyName(f reflect.StructField) string {
	if tag, _, _ := strings.Cut(f.Tag.Get("toml"), ","); tag != "" {
		return tag
	}
	return strings.ToLower(f.Name)
}

// keyNames returns the keys of a type and of all types within it.
func keyNames(t reflect.Type) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return keyNames(t.Elem())
	case reflect.Struct:
		var all []string
		for f := range t.Fields() {
			if key := keyName(f); key != "-" && f.IsExported() {
				all = append(append(all, key), keyNames(f.Type)...)
			}
		}
		return all
	}
	return nil
}

// positive are keys for which zero would stand for a default: a file that gives 0 has another intention.
var positive = []string{"seeds", "window", "count", "threads", "depth", "credits", "credits_to", "cpu_credits", "calls", "ahead", "work"}

// zeros returns an error if a key that must be positive is given as 0 in a file.
func zeros(what string, v any) error {
	switch v := v.(type) {
	case []map[string]any:
		for _, one := range v {
			if err := zeros(what, one); err != nil {
				return err
			}
		}
	case []any:
		for _, one := range v {
			if err := zeros(what, one); err != nil {
				return err
			}
		}
	case map[string]any:
		if name, ok := v["name"].(string); ok {
			what += " " + name
		}
		for _, key := range slices.Sorted(keys(v)) {
			if free(toml.Key{key, ""}) && key != "set" || key == "let" {
				continue
			}
			within := strings.TrimSpace(what + " " + key)
			if slices.Contains(positive, strings.ToLower(key)) && isZero(v[key]) { // TOML is decoded ignoring case
				return fmt.Errorf("%s = %v: must be more than 0; leave it out for the default", within, v[key])
			}
			if err := zeros(within, v[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// finite returns an error if a number of a file is infinite or no number: no metric of it is one, and no bound with it
// has a meaning.
func finite(what string, v any) error {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%s = %v: must be a finite number; leave out a bound that a row doesn't have", what, v)
		}
	case []map[string]any:
		for _, one := range v {
			if err := finite(what, one); err != nil {
				return err
			}
		}
	case []any:
		for _, one := range v {
			if err := finite(what, one); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(keys(v)) {
			if err := finite(strings.TrimSpace(what+" "+key), v[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

func isZero(v any) bool {
	switch v := v.(type) {
	case int64:
		return v == 0
	case float64:
		return v == 0
	case string:
		d, err := time.ParseDuration(v)
		return err == nil && d == 0
	}
	return false
}

// sigmas returns an error that names a spread that is too large.
func sigmas(what string, all map[string]int) error {
	for _, key := range []string{"noise", "cpu_noise", "change_sigma", "epoch_sigma"} {
		if n := all[key]; n < 0 || n > mostSigma {
			return fmt.Errorf("%s: %s = %d: 0 to %d ‰ is allowed", what, key, n, mostSigma)
		}
	}
	return nil
}

func (p *Profile) check() error {
	if err := ranges("profile", *p); err != nil {
		return err
	}
	return sigmas("profile", map[string]int{"noise": p.Noise, "cpu_noise": p.CPUNoise, "change_sigma": p.ChangeSigma, "epoch_sigma": p.EpochSigma})
}

// bounds checks all numbers of a scenario except its plans'.
func (sc *Scenario) bounds() error {
	if err := ranges("scenario", *sc); err != nil {
		return err
	}
	if sc.To > 0 && sc.To <= sc.From || sc.Time > 0 && sc.From >= sc.Time {
		return fmt.Errorf("from = %q, to = %q, time = %q: nothing is measured", sc.From, sc.To, sc.Time)
	}
	if sc.Window < leastPart {
		return fmt.Errorf("window = %q: at least %v", sc.Window, leastPart)
	}
	if sc.CPUs > mostParts {
		return fmt.Errorf("cpus = %d: at most %d", sc.CPUs, mostParts)
	}
	all := 0
	for _, a := range sc.Accelerators {
		if err := ranges(fmt.Sprintf("accelerator %q", a.Name), a); err != nil {
			return err
		}
		if all += max(a.Count, 1); all > mostParts {
			return fmt.Errorf("accelerator %q: count = %d: there may be %d in all", a.Name, a.Count, mostParts)
		}
	}
	all = 0
	for _, d := range sc.Domains {
		if err := ranges(fmt.Sprintf("domain %q", d.Name), d); err != nil {
			return err
		}
		if d.CreditsTo > 0 && d.CreditsTo < d.Credits {
			return fmt.Errorf("domain %q: credits_to = %d: at least credits, %d", d.Name, d.CreditsTo, d.Credits)
		}
		if d.FromTo > 0 && d.FromTo < d.From {
			return fmt.Errorf("domain %q: from_to = %q: at least from, %v", d.Name, d.FromTo, d.From)
		}
		if d.Count > mostAll || d.Threads > mostAll {
			return fmt.Errorf("domain %q: count = %d, threads = %d: at most %d threads in all", d.Name, d.Count, d.Threads, mostAll)
		}
		if all += max(d.Count, 1) * max(d.Threads, 1); all > mostAll {
			return fmt.Errorf("domain %q: count = %d, threads = %d: at most %d threads in all", d.Name, d.Count, d.Threads, mostAll)
		}
	}
	for name, w := range sc.Workloads {
		what := fmt.Sprintf("workload %q", name)
		if err := ranges(what, w); err != nil {
			return err
		}
		if w.KernelTo > 0 && w.KernelTo < w.Kernel {
			return fmt.Errorf("%s: kernel_to = %q: at least kernel, %v", what, w.KernelTo, w.Kernel)
		}
		if w.Noise != nil {
			if err := sigmas(what, map[string]int{"noise": *w.Noise}); err != nil {
				return err
			}
		}
	}
	return nil
}

// named checks for names that are missing or given twice.
func (sc *Scenario) named() error {
	seen := map[string]bool{}
	name := func(what, name string) error {
		switch {
		case name == "":
			return fmt.Errorf("%s has no name", what)
		case seen[what+name]:
			return fmt.Errorf("two are called %s %q; alike ones are made by count", what, name)
		}
		seen[what+name] = true
		return nil
	}
	for _, a := range sc.Accelerators {
		for i := range max(a.Count, 1) {
			if err := name("accelerator", a.numbered(i)); err != nil {
				return err
			}
		}
	}
	for _, d := range sc.Domains {
		for i := range max(d.Count, 1) {
			if err := name("domain", d.numbered(i)); err != nil {
				return err
			}
		}
	}
	for _, p := range sc.Plans {
		if err := name("plan", p.Name); err != nil {
			return err
		}
		for of := range p.Set {
			if !seen["domain"+of] && !slices.ContainsFunc(sc.Domains, func(d Domain) bool { return d.Name == of }) {
				return fmt.Errorf("plan %q: set: there is no domain %q%s", p.Name, of, closest(of, sc.domainNames()))
			}
		}
	}
	return nil
}

// check checks a domain with a plan's overrides.
func (d *Domain) check(name string, sc *Scenario) error {
	what := fmt.Sprintf("domain %q", name)
	if err := ranges(what, *d); err != nil {
		return err
	}
	r := d.Reserve
	kind, ok := reserves[r.Kind]
	switch {
	case !ok:
		return fmt.Errorf("%s: reserve kind %q; there are PE, AE, background", what, r.Kind)
	case kind == vcpu.NoReserve && r != (Reserve{}):
		return fmt.Errorf("%s: reserve has no kind; there are PE, AE, background", what)
	case (kind == vcpu.Posterior || kind == vcpu.Apriori) && (r.Cost <= 0 || r.Period < r.Cost):
		return fmt.Errorf("%s: reserve of cost %v in period %v: cost must be more than 0s, and period no less", what, r.Cost, r.Period)
	case sc.Time > 0 && max(d.From, d.FromTo) >= sc.Time:
		return fmt.Errorf("%s: begins at %v, when all is over: time = %q", what, max(d.From, d.FromTo), sc.Time)
	case d.To > 0 && d.To <= d.From:
		return fmt.Errorf("%s: to = %q: it begins at %v", what, d.To, d.From)
	}
	return nil
}
