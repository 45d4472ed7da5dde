package sim

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// What a file may say: enough for anything that can be simulated, and too little to
// exhaust the machine before it is.
const (
	longest    = 10000 * time.Hour
	mostNumber = 1_000_000_000
	mostBytes  = Bytes(1e15)
	mostParts  = 100_000   // accelerators, CPUs, pieces of a copy
	mostAll    = 1_000_000 // threads
	mostSigma  = 3000      // ‰
	leastPart  = time.Millisecond
)

// ranges says which number in v, a struct of a file, is out of its range.
func ranges(what string, v any) error {
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		key := strings.ToLower(s.Type().Field(i).Name)
		if tag, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("toml"), ","); tag != "" {
			key = tag
		}
		f := s.Field(i)
		if f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		switch {
		case f.Type() == reflect.TypeFor[time.Duration]():
			if d := time.Duration(f.Int()); d < 0 || d > longest {
				return fmt.Errorf("%s: %s = %q: 0s to %v is allowed", what, key, d, longest)
			}
		case f.Type() == reflect.TypeFor[Bytes]():
			if b := Bytes(f.Int()); b < 0 || b > mostBytes {
				return fmt.Errorf("%s: %s = %d: 0 to 1000 TB is allowed", what, key, b)
			}
		case f.Kind() == reflect.Int && key != "priority":
			if n := f.Int(); n < 0 || n > mostNumber {
				return fmt.Errorf("%s: %s = %d: 0 to %d is allowed", what, key, n, mostNumber)
			}
		case f.Kind() == reflect.Struct:
			if err := ranges(what+": "+key, f.Interface()); err != nil {
				return err
			}
		}
	}
	return nil
}

// sigmas says which spread is too large.
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

// bounds looks at all numbers of a scenario but those of its plans.
func (sc *Scenario) bounds() error {
	if err := ranges("scenario", *sc); err != nil {
		return err
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
		if w.Noise != nil {
			if err := sigmas(what, map[string]int{"noise": *w.Noise}); err != nil {
				return err
			}
		}
	}
	return nil
}
