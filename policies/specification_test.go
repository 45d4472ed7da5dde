package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pegasus/vcpu"
)

func TestSpecification(t *testing.T) {
	s, errs := ParseSpecification(`
# the desktop
<X:HT:none:100::>
<game:PRT:AE:*:5000:25000>   # the foreground first
< player : PRT : PE : 10 : 10000 : 40000 >
<bomb1:PRT:PE@bombs:-1:2500:25000>
<bomb2:PRT:PE@bombs:-2:2500:25000>
<bomb2:PRT:none:5:0:0>
`)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	bombs := vcpu.Reserve{Kind: vcpu.Posterior, Shared: "bombs", Cost: 2500 * time.Microsecond, Period: 25 * ms}
	for name, want := range map[string]vcpu.Promise{
		"X":      {Priority: 100, Throughput: true},
		"game":   {Reserve: vcpu.Reserve{Kind: vcpu.Apriori, Cost: 5 * ms, Period: 25 * ms}},
		"player": {Priority: 10, Reserve: vcpu.Reserve{Kind: vcpu.Posterior, Cost: 10 * ms, Period: 40 * ms}},
		"bomb1":  {Priority: -1, Reserve: bombs},
		"bomb2":  {Priority: -2, Reserve: bombs},
		"other":  {Reserve: vcpu.Reserve{Kind: vcpu.Background}},
	} {
		if got := s.Promise(name); got != want {
			t.Errorf("%s is promised %+v, not %+v", name, got, want)
		}
	}
	for _, e := range s {
		if e.Foreground != (e.Name == "game") {
			t.Errorf("%s goes with the foreground: %v", e.Name, e.Foreground)
		}
	}
}

// TestSpecificationErrors: each error names the line, the value and the allowed values.
func TestSpecificationErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"game", `line 1: entry is "game"; it must be <name:sched:resv:prio:C:T>`},
		{"\n<a:PRT:none:1:0>", `line 2: entry is "<a:PRT:none:1:0>"; it must be <name:sched:resv:prio:C:T>`},
		{"<:PRT:none:1:0:0>", `line 1: name is ""; a domain's name is needed`},
		{"<a:EDF:none:1:0:0>", `line 1: sched is "EDF"; PRT and HT are allowed`},
		{"<a:PRT:XE:1:1:1000>", `line 1: resv is "XE"; none, PE, AE, PE@group and AE@group are allowed`},
		{"<a:PRT:PE@:1:1:1000>", `line 1: resv is "PE@"; none, PE, AE, PE@group and AE@group are allowed`},
		{"<a:HT:PE:1:1:1000>", `line 1: resv is "PE"; HT allows none: a reserve is looked at before each request`},
		{"<a:PRT:PE:high:1:1000>", `line 1: prio is "high"; * and the numbers from -1000000 to 1000000 are allowed`},
		{"<a:PRT:PE:1:1:999>", `line 1: T is "999"; 1000 to 10000000 µs are allowed`},
		{"<a:PRT:PE:1:1:99999999999999999999>", `line 1: T is "99999999999999999999"; 1000 to 10000000 µs are allowed`},
		{"<a:PRT:AE:1:2001:2000>", `line 1: C is "2001"; 1 to 2000 µs are allowed`},
		{"<a:PRT:AE:1:0:2000>", `line 1: C is "0"; 1 to 2000 µs are allowed`},
		{"<a:PRT:PE@g:1:1:2000>\n<b:PRT:AE@g:1:1:2000>", `line 2: resv is "AE@g"; line 1 has this reserve as PE with 1 of 2000 µs, and so must all that share it`},
	} {
		s, errs := ParseSpecification(c.text + "\n<good:PRT:none:1:0:0>")
		if len(errs) != 1 || errs[0].Error() != c.want {
			t.Errorf("%q: %v instead of %s", c.text, errs, c.want)
		}
		if s.Promise("good").Priority != 1 {
			t.Errorf("%q: the line after it does not count", c.text)
		}
	}
}

// FuzzSpecification: every line counts, or is reported, or is empty; entries that count can be written again,
// and a policy can keep every promise.
func FuzzSpecification(f *testing.F) {
	f.Add("<a:PRT:AE@g:*:2500:25000>\n<b:HT:none:-5::>#x\n\n<c:PRT:PE:1:1:1000>")
	f.Add("<a:PRT:AE:1:2001:2000>\n<<::::::>")
	f.Fuzz(func(t *testing.T, text string) {
		s, errs := ParseSpecification(text)
		lines := strings.Count(text, "\n") + 1
		if len(s)+len(errs) > lines {
			t.Fatalf("%d entries and %d errors in %d lines", len(s), len(errs), lines)
		}
		for _, e := range errs {
			if e.Line < 1 || e.Line > lines || e.Allowed == "" {
				t.Fatalf("%v in %d lines", e, lines)
			}
		}
		var again strings.Builder
		for _, e := range s {
			fmt.Fprintln(&again, write(e))
		}
		same, errs := ParseSpecification(again.String())
		if len(errs) > 0 || len(same) != len(s) {
			t.Fatalf("written down again:\n%s%v", &again, errs)
		}
		p := newPRT(Defaults(Paper))
		for i, e := range s {
			if same[i].Name != e.Name || same[i].Promise != e.Promise || same[i].Foreground != e.Foreground {
				t.Fatalf("written down again %+v is %+v", e, same[i])
			}
			p.Attach(0, Domain{ID: ID(i), Promise: s.Promise(e.Name)})
		}
		p.Pick(0)
	})
}

// write returns the text of an entry.
func write(e Entry) string {
	p, r := e.Promise, e.Promise.Reserve
	sched, prio := "PRT", fmt.Sprint(p.Priority)
	if p.Throughput {
		sched = "HT"
	}
	if e.Foreground {
		prio = "*"
	}
	resv := map[vcpu.ReserveKind]string{vcpu.NoReserve: "none", vcpu.Posterior: "PE", vcpu.Apriori: "AE"}[r.Kind]
	if r.Shared != "" {
		resv += "@" + r.Shared
	}
	return fmt.Sprintf("<%s:%s:%s:%s:%d:%d>", e.Name, sched, resv, prio, r.Cost.Microseconds(), r.Period.Microseconds())
}
