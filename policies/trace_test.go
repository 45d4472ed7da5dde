package policies

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A run is recorded from its middle on, with the policies changing, and replayed: the results are the same.
func TestTrace(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			m := newModel(mustNew(t, name, Production), 5)
			for i := range ID(5) {
				m.add(&client{id: i, credits: 256 << (i % 3), kernels: []time.Duration{ms << i}, burst: int(i), think: time.Duration(i) * 7 * ms})
			}
			m.add(&client{id: 9, credits: 256, kernels: []time.Duration{40 * ms}, ends: leaves, away: 20 * ms})
			m.run(Time(100 * ms))
			var trace bytes.Buffer
			out := json.NewEncoder(&trace)
			recordLine := func(r Record) {
				if err := out.Encode(r); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.sched.Record(m.now, Choice{name, Defaults(Production)}, recordLine); err != nil {
				t.Fatal(err)
			}
			m.schedule()
			m.run(Time(600 * ms))
			again := Choice{"lag", Defaults(Paper)}
			recordLine(Record{At: m.now, Choice: &again})
			m.sched.Use(m.now, mustNew(t, "lag", Paper))
			m.schedule()
			m.run(Time(800 * ms))
			if err := m.sched.Record(m.now, Choice{}, nil); err != nil {
				t.Fatal(err)
			}

			text := trace.String()
			r, err := PlayAgain(strings.NewReader(text))
			if err != nil || r.Differs != nil || r.Decisions == 0 {
				t.Errorf("played again: %+v, %v", r, err)
			}
			// A different result is detected.
			other := strings.Replace(text, `"Open":true`, `"Open":false`, 1)
			if r, err = PlayAgain(strings.NewReader(other)); err != nil || r.Differs == nil {
				t.Errorf("played otherwise: %+v, %v", r, err)
			}
		})
	}
}

func TestBadTraces(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "empty",
		`{"at":1,"ready":true}`:                  "line 1: a trace begins with",
		`{"at":1,"choice":{"policy":"tombola"}}`: `unknown policy "tombola"`,
		`{"at":1,"event":{"kind":"dance"}}`:      `"dance" is no kind of event`,
		`nonsense`:                               "line 1",
	} {
		if _, err := PlayAgain(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
