package hypervisor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pegasus/test/seeds"
	"pegasus/vcpu"
)

// cpus returns the set of CPUs with these numbers.
func cpus(numbers ...int) (s CPUSet) {
	for _, n := range numbers {
		s.Add(n)
	}
	return s
}

func TestDivide(t *testing.T) {
	type want struct {
		cpus   CPUSet
		weight int64
		most   time.Duration
		gets   time.Duration
	}
	zero, one, both := cpus(0), cpus(1), cpus(0, 1)
	for name, all := range map[string][]want{
		"by weight":                         {{zero, 256, 30 * ms, 10 * ms}, {zero, 512, 30 * ms, 20 * ms}},
		"what one leaves is the others'":    {{zero, 256, 30 * ms, 12500 * time.Microsecond}, {zero, 512, 5 * ms, 5 * ms}, {zero, 256, 30 * ms, 12500 * time.Microsecond}},
		"a CPU's time at most":              {{both, 768, 30 * ms, 30 * ms}, {both, 256, 30 * ms, 30 * ms}},
		"three on two":                      {{both, 256, 30 * ms, 20 * ms}, {both, 256, 30 * ms, 20 * ms}, {both, 256, 30 * ms, 20 * ms}},
		"two are pinned, one is not":        {{zero, 256, 30 * ms, 15 * ms}, {zero, 256, 30 * ms, 15 * ms}, {both, 256, 30 * ms, 30 * ms}},
		"a heavy one is pinned":             {{zero, 768, 30 * ms, 30 * ms}, {both, 256, 30 * ms, 15 * ms}, {both, 256, 30 * ms, 15 * ms}},
		"what the pinned leave is for all":  {{zero, 256, 6 * ms, 6 * ms}, {both, 256, 30 * ms, 27 * ms}, {both, 256, 30 * ms, 27 * ms}},
		"each has its own":                  {{zero, 1, 30 * ms, 30 * ms}, {one, 65535, 30 * ms, 30 * ms}},
		"a light one beside two heavy ones": {{zero, 10, 30 * ms, 300 * time.Microsecond}, {zero, 990, 30 * ms, 29700 * time.Microsecond}, {one, 990, 30 * ms, 30 * ms}},
	} {
		var claims []*claim
		for _, w := range all {
			claims = append(claims, &claim{weight: w.weight, cpus: w.cpus, most: w.most})
		}
		divide(claims, 30*ms)
		for i, w := range all {
			if claims[i].gets != w.gets {
				t.Errorf("%s: claim %d gets %v, not %v", name, i, claims[i].gets, w.gets)
			}
		}
	}
}

func TestCPUSet(t *testing.T) {
	s := cpus(0, 63, 64, 5000, -1)
	if s.Len() != 4 || s[15]>>63 != 1 || s[1] != 1 {
		t.Errorf("%x has %d", s, s.Len())
	}
	if n := FirstCPUs(70); n.Len() != 70 || n[1] != 63 {
		t.Errorf("%x has %d", n, n.Len())
	}
	if all := FirstCPUs(1 << 20); all.Len() != MaxCPUs {
		t.Errorf("the largest set has %d", all.Len())
	}
}

// Whatever vCPUs do: credits stay within a period, no more time is earned or predicted than exists, and the result is
// deterministic.
func FuzzAccounts(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21})
	f.Add([]byte("two are pinned to a CPU, and a third is not; one has a quota, too, and rests now and then"))
	f.Fuzz(func(t *testing.T, script []byte) {
		once, again := run(t, script), run(t, script)
		if once != again {
			t.Errorf("%s\n%s", once, again)
		}
	})
}

// nested are sets of which any two are disjoint, or one contains the other.
var nested = []CPUSet{cpus(0), cpus(1), cpus(2), cpus(3), cpus(0, 1), cpus(2, 3), cpus(0, 1, 2, 3)}

// run plays a script: three bytes set up each of at most eight accounts on four CPUs, and then each three are one
// account's activity in a period.
func run(t *testing.T, script []byte) (all string) {
	const period = 30 * ms
	var accounts []*Account
	next := func() (b [3]byte) {
		n := copy(b[:], script)
		script = script[n:]
		return b
	}
	for range 1 + len(script)%8 {
		b := next()
		a := &Account{Weight: 1 + int64(b[0])<<(b[1]%20), CPUs: nested[int(b[2])%len(nested)], Most: min(1+8*int(b[1]), 1000)}
		if b[2] >= 200 {
			a.CPUs = cpus(int(b[2])%4, int(b[2]>>2)%4)
		}
		accounts = append(accounts, a)
	}
	for range 64 {
		for _, a := range accounts {
			b := next()
			a.Ran = a.most(period) * time.Duration(b[0]) / 255
			a.Waited = (period - a.Ran) * time.Duration(b[1]) / 255
			a.State, a.CPU = vcpu.VCPUState(b[2]%4), int(b[2]>>2)%4
		}
		Settle(accounts, period)
		Foretell(accounts, period)
		check(t, accounts, period)
		for _, a := range accounts {
			all += fmt.Sprint(a.Credit, " ", a.Next, ";")
		}
		if len(script) == 0 {
			break
		}
	}
	return all
}

func check(t *testing.T, accounts []*Account, period time.Duration) {
	var claims []*claim
	for i, a := range accounts {
		if a.Credit < -period || a.Credit > period {
			t.Fatalf("account %d has %v left of a period of %v", i, a.Credit, period)
		}
		if a.Next < 0 || a.Next > 1000 || a.Most < 1000 && a.Next > a.Most*10/3+1 {
			t.Fatalf("account %d, which may have %d ‰ of 100 ms, is foretold %d ‰ of 30", i, a.Most, a.Next)
		}
		claims = append(claims, &claim{account: a, weight: a.Weight, cpus: a.CPUs, most: a.most(period)})
	}
	divide(claims, period)
	all, exact := time.Duration(0), true
	of := map[CPUSet]time.Duration{}
	for i, c := range claims {
		if c.gets < 0 || c.gets > c.most {
			t.Fatalf("claim %d, which may have %v, gets %v", i, c.most, c.gets)
		}
		all += c.gets
		exact = exact && slices.Contains(nested, c.cpus)
		if of[c.cpus] += c.gets; of[c.cpus] > period*time.Duration(c.cpus.Len()) {
			t.Fatalf("those on %d CPUs get %v of %v", c.cpus.Len(), of[c.cpus], period)
		}
	}
	if exact && all > 4*period {
		t.Fatalf("all get %v of four CPUs' %v", all, period)
	}
}

// Claims of equal weights and limits make pools with equal levels, where rounding could take a nanosecond that a
// smaller pool doesn't have.
func TestDivideNoMoreThanThereIs(t *testing.T) {
	const period = 30 * ms
	random := rand.New(rand.NewPCG(seeds.Fixed(t), 0))
	for range 100_000 {
		var claims []*claim
		for range 1 + random.IntN(8) {
			cpus := nested[random.IntN(len(nested))]
			most := time.Duration(28+random.IntN(3)) * ms * time.Duration(cpus.Len())
			claims = append(claims, &claim{weight: 1 + random.Int64N(6), cpus: cpus, most: most})
		}
		divide(claims, period)
		for _, set := range nested {
			within := time.Duration(0)
			for _, c := range claims {
				if set.common(&c.cpus) == c.cpus.Len() {
					within += c.gets
				}
			}
			if within > period*time.Duration(set.Len()) {
				t.Fatalf("claims within %d CPUs get %v of %v each", set.Len(), within, period)
			}
		}
	}
}
