package coordination

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Two domains compute, of which one runs in the even and two in the odd tens of milliseconds.
const two = `{"at":0,"choice":{"policy":"cosched","options":{}}}
{"at":0,"name":"one","event":{"kind":"attach","domain":{"ID":1}}}
{"at":0,"name":"two","event":{"kind":"attach","domain":{"ID":2}}}
{"at":0,"event":{"kind":"wake","domain":{"ID":1}}}
{"at":0,"ready":true,"actions":[{"Domain":1,"Open":true,"Lease":{"Domain":1,"Until":9223372036854775807}}]}
{"at":0,"run":{"domain":"one","vcpu":0,"cpu":1,"from":0,"to":10000000}}
{"at":30000000,"run":{"domain":"two","vcpu":0,"cpu":1,"from":30000000,"to":40000000}}
{"at":5000000,"event":{"kind":"wake","domain":{"ID":2}}}
{"at":5000000,"ready":true,"actions":[{"Domain":1,"Open":true,"Lease":{"Domain":1,"Until":12000000}}]}
{"at":11000000,"event":{"kind":"observe","sample":{"At":11000000,"Quality":1,"Domains":[{"ID":1,"VCPUs":[{"State":2}]},{"ID":2,"VCPUs":[{"State":3}]}]}}}
{"at":12000000,"ready":true,"actions":[{"Domain":1,"Open":false,"Lease":{}},{"Domain":2,"Open":true,"Lease":{"Domain":2,"Until":22000000}}]}
{"at":10000000,"run":{"domain":"two","vcpu":0,"cpu":1,"from":10000000,"to":15000000}}
{"at":15000000,"run":{"domain":"two","vcpu":0,"cpu":1,"from":15000000,"to":20000000}}
{"at":20000000,"run":{"domain":"one","vcpu":1,"cpu":1,"from":20000000,"to":30000000}}
{"at":22000000,"ready":true,"actions":[{"Domain":2,"Open":true,"Lease":{"Domain":2,"Until":32000000}}]}
{"at":32000000,"event":{"kind":"wake","domain":{"ID":1},"signal":1}}
{"at":32000000,"ready":true,"actions":[{"Domain":2,"Open":true,"Lease":{"Domain":2,"Until":42000000}}]}
{"at":42000000,"ready":true,"actions":[{"Domain":2,"Open":false,"Lease":{}}]}
`

func TestJudge(t *testing.T) {
	all, err := Read(strings.NewReader(two))
	if err != nil {
		t.Fatal(err)
	}
	v := Judge(all)
	// At 12 and 22 ms two domains had work, and two was chosen; at 5 ms there was nothing to choose. At 32 ms
	// one had no work, and the vCPUs running until 42 ms are unknown.
	want := Verdict{Policy: "cosched", Decisions: 2, Now: Part{0.5, 0.5, 1}, Window: Part{0.5, 0.5, 0.8},
		Preferred: Rivals{2, 0.5}, Taken: Rivals{2, 0.5}, Others: Rivals{2, 0.5}, Age: 6 * time.Millisecond, Looks: 2, Right: 1,
		Domains: []Share{{"one", 0, 0, 20 * time.Millisecond}, {"two", 2, 1, 20 * time.Millisecond}}}
	near := func(a, b Part) bool {
		return math.Abs(a.Chosen-b.Chosen)+math.Abs(a.Chance-b.Chance)+math.Abs(a.Best-b.Best) < 1e-9
	}
	if v.Policy != want.Policy || v.Decisions != want.Decisions || !near(v.Now, want.Now) || !near(v.Window, want.Window) ||
		v.Preferred != want.Preferred || v.Taken != want.Taken || v.Others != want.Others || v.Age != want.Age || v.Looks != want.Looks || v.Right != want.Right ||
		len(v.Domains) != 2 || v.Domains[0] != want.Domains[0] || v.Domains[1] != want.Domains[1] {
		t.Errorf("it is\n%+v, not\n%+v", v, want)
	}
}

// A domain without a boost by AugC, because its vCPU has no credit left, isn't preferred.
func TestJudgeBoost(t *testing.T) {
	for left, want := range map[string]int{"-5": 0, "0": 0, "7": 2} {
		text := strings.Replace(strings.Replace(two, "cosched", "augc", 1), `{"ID":2,"VCPUs"`, `{"ID":2,"Remaining":`+left+`,"VCPUs"`, 1)
		all, err := Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if v := Judge(all); v.Preferred.Times != want || v.Others.Times != 4-want {
			t.Errorf("with %s left it is preferred %d times and %d are others, not %d", left, v.Preferred.Times, v.Others.Times, want)
		}
	}
}

// A domain that leaves takes its state with it; one that comes in its place is another.
func TestJudgeWhoLeaves(t *testing.T) {
	text := strings.Replace(two, `{"at":32000000,"event"`, `{"at":30000000,"event":{"kind":"detach","domain":{"ID":2}}}
{"at":32000000,"event"`, 1)
	all, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if v := Judge(all); v.Decisions != 2 || len(v.Domains) != 2 || v.Domains[1].Chosen != 2 {
		t.Errorf("it is %+v", v)
	}
}

// Judge ends with a verdict for any input.
func FuzzJudge(f *testing.F) {
	f.Add(two)
	f.Add(`{"at":0,"event":{"kind":"observe"}}`)
	f.Add(`{"at":0,"ready":true,"actions":[{"Domain":7,"Lease":{"Class":9}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		v := Judge(all)
		for _, p := range []Part{v.Now, v.Window} {
			if !(p.Chosen <= p.Best+1e-9 && p.Chance <= p.Best+1e-9 && p.Best <= 1+1e-9 && p.Chosen >= 0) {
				t.Errorf("%+v", v)
			}
		}
	})
}
