package policies

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Each policy has the phrases of the documents; each declared parameter belongs to a policy or to reserves, and has names of
// its own.
func TestSpecsAreComplete(t *testing.T) {
	for _, s := range Specs() {
		if s.Serves == "" || s.Part == "" {
			t.Errorf("%s: Serves and Part are %q and %q, want phrases", s.Name, s.Serves, s.Part)
		}
	}
	names := map[string]string{}
	for _, p := range Params() {
		if p.Doc == "" || p.Min > p.Max || p.Default > p.Max || p.Default < p.Min && (p.Default != 0 || p.Zero == "") {
			t.Errorf("%s: meaning %q, range %d to %d, default %d", p.Key, p.Doc, p.Min, p.Max, p.Default)
		}
		for _, name := range []string{p.Key, p.Name} {
			if other, ok := names[strings.ToLower(name)]; ok && other != p.Key {
				t.Errorf("%s and %s have the name %s", other, p.Key, name)
			}
			names[strings.ToLower(name)] = p.Key
		}
	}
	if got := len(Params()); got != declared {
		t.Errorf("%d of %d declared parameters belong to a policy", got, declared)
	}
}

// The options in a trace keep their names and their order.
func TestOptionsInTraces(t *testing.T) {
	const want = `{"Mode":0,"Tick":30000000,"RotationCap":1000000000,"IdleYield":2000000,"DebtAF":0,"Boost":4,"MaxSkip":4,"ByCredits":false,` +
		`"Scan":1000000000,"Wait":2000000,"Ahead":0,"SwitchCost":250000,"Accounts":0,"Order":0,"Arrival":false,"Launches":32,"Period":30000000,` +
		`"Window":1000000000,"Mean":0,"HoldBack":500000,"RunRequests":8,"RunTime":10000000,"History":0,"BackgroundCost":2500000,` +
		`"BackgroundPeriod":25000000,"ReserveLimit":90,"Quantum":500000,"Jiffy":0`
	text, err := json.Marshal(Defaults(Production))
	if err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("got %s, %v; want it to begin with %s", text, err, want)
	}
	o := Defaults(Paper)
	for _, p := range Params() {
		o.Set(p, p.Max)
	}
	o.Set(boost.Param, 0)
	o.Accounts, o.Tick = MRQ, time.Second
	text, err = json.Marshal(Choice{"augc", o})
	if err != nil {
		t.Fatal(err)
	}
	var c Choice
	if err := json.Unmarshal(text, &c); err != nil || c != (Choice{"augc", o}) {
		t.Errorf("%v; %s became %+v, want %+v", err, text, c, o)
	}
	if got := boost.of(&c.Options); got != 0 {
		t.Errorf("a boost of 0 became %d", got)
	}
}

// A value that is not set is the default, and one out of its range is refused.
func TestValues(t *testing.T) {
	var o Options
	for _, p := range Params() {
		want := p.Default
		if p.bare {
			want = 0
		}
		if got := o.Get(p); got != want {
			t.Errorf("%s: got %d, want %d", p.Key, got, want)
		}
	}
	for _, c := range []struct {
		param *Param
		value int64
		want  string
	}{
		{launches.Param, -1, "launches is -1; 1 to 1024 is allowed"},
		{holdBack.Param, int64(31 * ms), "hold back is 31ms; 10µs to 30ms is allowed"},
		{historyKeys.Param, 1 << 17, "history is 131072; 0 to 65536 is allowed"},
		{orderInUnit.Param, 4, "order is 4; 0 to 3 is allowed"},
		{backgroundCost.Param, int64(26 * ms), "background period is 25ms; 26ms to 10s is allowed"},
		{mean.Param, -1, ""},
		{boost.Param, -1, ""},
	} {
		var o Options
		o.SetOption(c.param, c.value)
		if _, err := New("fifo", o); err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: got %v, want %q", c.param.Key, err, c.want)
		}
	}
}
