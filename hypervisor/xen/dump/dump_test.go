package dump

import (
	"cmp"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pegasus/hypervisor/xen/trace"
)

func recorded(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The dumps of Xen 4.17 are parsed.
func TestCredit(t *testing.T) {
	d, err := Parse(recorded(t, "credit"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Dump{
		Now: 96887005908, Scheduler: "credit",
		VCPUs: []VCPU{
			{ID: id(2, 0), Earns: true, Priority: Over, CPU: 0, Credit: -64, Weight: 512}, {ID: id(0, 1), Earns: true, Priority: Under, CPU: 1, Credit: 166, Weight: 256},
			{ID: id(4, 0), Earns: true, Priority: Under, CPU: 0, Credit: 40, Weight: 256}, {ID: id(1, 1), Earns: true, Priority: Over, CPU: 1, Credit: -300, Weight: 256},
			{ID: id(1, 0), Earns: true, Priority: Under, CPU: 1, Credit: 42, Weight: 256}, {ID: id(0, 0), Priority: Boost, CPU: 0, Credit: 163, Weight: 256},
		},
		Pools: []Pool{{Balance: -116, Handed: 2292}},
		CPUs: []CPU{
			{Number: 0, Running: id(0, 0), Waiting: []trace.VCPU{id(4, 0), id(2, 0)}},
			{Number: 1, Running: id(1, 0), Waiting: []trace.VCPU{id(0, 1), id(1, 1)}},
		},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v\nwant %+v", d, want)
	}
	again, err := Parse(recorded(t, "credit2") + recorded(t, "credit"))
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("behind another: %+v, %v", again, err)
	}
	const guest = "(d3) NOW=5\n(d3) \t  1: [1.0] pri=-1 flags=0 cpu=0 credit=300 [w=256,cap=0]\n"
	again, err = Parse(guest + strings.ReplaceAll(recorded(t, "credit"), "(XEN) CPUs info", guest+"(XEN) CPUs info") + guest)
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("with what a guest printed: %+v, %v", again, err)
	}
}

// Xen prints a line in parts, with other output in between: a credit on another line isn't 0, and a guest's output
// isn't Xen's. The number of hand-outs takes two years to fill 31 bits.
func TestTorn(t *testing.T) {
	whole := recorded(t, "credit")
	want, err := Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"by a guest":             strings.Replace(whole, " credit=-64 ", "(d3) NOW=5 run: [1.0] pri=0 flags=0 cpu=0 credit=300 [w=1,cap=1]\n credit=-64 ", 1),
		"by a guest, the second": strings.ReplaceAll(whole, "2: [2.0] pri=-2 flags=0 cpu=0 ", "2: [2.0] pri=-2 flags=0 cpu=0(d12) \n "),
		"by Xen itself":          strings.Replace(whole, "2: [2.0] pri=-2 flags=0 cpu=0 ", "2: [2.0] pri=-2 flags=0 cpu=0(XEN) a word\n ", 1),
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		slices.SortFunc(got.VCPUs, byID)
		if slices.SortFunc(want.VCPUs, byID); !reflect.DeepEqual(got, want) {
			t.Errorf("torn %s:\n%+v, wanted\n%+v", name, got, want)
		}
	}
	none, err := Parse(strings.ReplaceAll(whole, " credit=-64 ", "(d3) \n credit=-64 "))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := none.VCPU(id(2, 0)); ok {
		t.Errorf("it is known without its credit: %+v", v)
	}
	old, err := Parse(strings.Replace(whole, "= 2292", "= 3000002292", 1))
	if err != nil || old.Pools[0].Handed != 3000002292 {
		t.Errorf("%+v, %v", old, err)
	}
}

func byID(a, b VCPU) int {
	return cmp.Or(cmp.Compare(a.ID.Domain, b.ID.Domain), cmp.Compare(a.ID.Number, b.ID.Number))
}

func TestCredit2(t *testing.T) {
	d, err := Parse(recorded(t, "credit2"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Dump{
		Now: 93345075484, Scheduler: "credit2",
		VCPUs: []VCPU{
			{ID: id(0, 0), Flags: 2, CPU: 1, Credit: 9290078, Weight: 256}, {ID: id(0, 1), CPU: 0, Credit: 10500000, Weight: 256},
			{ID: id(1, 0), CPU: 1, Credit: 10500000, Weight: 256}, {ID: id(2, 0), CPU: 0, Credit: 10000000, Weight: 256},
			{ID: id(3, 0), CPU: 0, Credit: 10500000, Weight: 256}, {ID: id(3, 1), Flags: 2, CPU: 0, Credit: -10000000, Weight: 256},
			{ID: id(4, 0), CPU: 1, Credit: 10000000, Weight: 512},
		},
		Pools:  []Pool{{}},
		CPUs:   []CPU{{Number: 0, Running: id(3, 1)}, {Number: 1, Running: id(0, 0)}},
		Queues: []Queue{{MaxWeight: 512, Waiting: []trace.VCPU{id(3, 0), id(0, 1), id(4, 0), id(2, 0)}}},
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v\nwant %+v", d, want)
	}
}

func id(domain, number uint16) trace.VCPU { return trace.VCPU{Domain: domain, Number: number} }

func FuzzParse(f *testing.F) {
	f.Add(recorded(f, "credit"))
	f.Add(recorded(f, "credit2"))
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		for i := range d.VCPUs {
			if v, ok := d.VCPU(d.VCPUs[i].ID); !ok || v != &d.VCPUs[i] || v.ID.Domain == trace.Idle {
				t.Fatalf("%+v is there twice, or idle", d.VCPUs[i])
			}
		}
	})
}

func TestNothing(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "no line with NOW=",
		"(XEN) NOW=5\n":         "no CPUs behind",
		"(XEN) NOW=5\nNOW=x6\n": "no CPUs behind",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// hyper prints in parts, after earlier output.
type hyper struct {
	ring  string
	print string
	fails error
}

func (h *hyper) Press(string) error {
	h.ring += h.print
	return h.fails
}

func (h *hyper) Console(from uint32) ([]byte, uint32, error) {
	part := h.ring[from:]
	part = part[:min(len(part), 100)]
	return []byte(part), from + uint32(len(part)), nil
}

func TestTake(t *testing.T) {
	h := &hyper{ring: recorded(t, "credit2"), print: recorded(t, "credit")}
	p := NewPrinter(h)
	for range 2 { // each time only the new output
		if text, err := p.Take(); err != nil || text != h.print {
			t.Errorf("%q, %v", text, err)
		}
	}
	h.fails = errors.New("no such key")
	if _, err := p.Take(); !errors.Is(err, h.fails) {
		t.Errorf("%v", err)
	}
}
