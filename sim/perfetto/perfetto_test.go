package perfetto

import (
	"encoding/json"
	"strings"
	"testing"
)

// Continuous activity is one slice, even if it comes in pieces; lines keep their groups.
func TestWrite(t *testing.T) {
	p := New("engines", "CPUs")
	p.Continue(Slice{Group: 1, Line: "CPU 0", Name: "web", From: 1000, To: 2000})
	p.Continue(Slice{Group: 1, Line: "CPU 0", Name: "web", From: 2000, To: 5000})
	p.Add(Slice{Line: "soft0", Name: "web", From: 3000, To: 4000, Args: map[string]any{"process": 7}})
	p.Add(Slice{Line: "soft0", Name: "web", From: 4000, To: 4500})
	p.Continue(Slice{Group: 1, Line: "CPU 0", Name: "db", From: 5000, To: 6000})
	if len(p.Slices()) != 4 {
		t.Errorf("%v", p.Slices())
	}
	var b strings.Builder
	if err := p.Write(&b, 1000); err != nil {
		t.Fatal(err)
	}
	var read struct{ TraceEvents []event }
	if err := json.Unmarshal([]byte(b.String()), &read); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	var got []event
	for _, e := range read.TraceEvents {
		if e.Phase == "X" {
			got = append(got, e)
		}
	}
	if len(got) != 4 || got[0].At != 0 || got[0].For != 4 || got[0].Group != 2 || got[1].Group != 1 || got[3].Line != got[0].Line {
		t.Errorf("%+v", got)
	}
	if b.Reset(); New().Write(&b, 0) != nil || !json.Valid([]byte(b.String())) {
		t.Errorf("an empty one: %q", b.String())
	}
}
