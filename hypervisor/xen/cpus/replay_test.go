package cpus

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
	"pegasus/vcpu"
)

// recordedTrace is a recorded trace, played up to a time.
type recordedTrace struct {
	all   []trace.Record
	clock *trace.Clock
	now   uint64
	next  int
}

func (r *recordedTrace) Read(emit func(cpu int, records []byte, lost bool)) {
	of := make(map[int][]byte)
	for ; r.next < len(r.all) && r.all[r.next].At <= r.now; r.next++ {
		of[r.all[r.next].CPU] = trace.Append(of[r.all[r.next].CPU], &r.all[r.next])
	}
	for cpu, records := range of {
		emit(cpu, records, false)
	}
}

func (r *recordedTrace) Close() error { return nil }

func (r *recordedTrace) instant() trace.Instant {
	return trace.Instant{Ticks: r.now, Nanos: r.clock.Nanos(r.now)}
}

// recording returns a trace, and the hypervisor's prints during it, from schedule's testdata.
func recording(t *testing.T, name string) (*recordedTrace, []printed) {
	t.Helper()
	read := func(part string) []byte {
		f, err := os.Open("../schedule/testdata/" + name + "." + part + ".gz")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r := &recordedTrace{}
	var err error
	if r.all, err = trace.Parse(read("trace")); err != nil {
		t.Fatal(err)
	}
	if r.clock, err = trace.Calibrate(r.all); err != nil {
		t.Fatal(err)
	}
	var dumps []printed
	for _, text := range strings.Split(string(read("dumps")), "dump ")[1:] {
		var from, to uint64
		fmt.Sscan(text, &from, &to)
		d, err := dump.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		dumps = append(dumps, printed{d, int64(from), int64(to)})
	}
	return r, dumps
}

// The credits that the daemon would have computed, with a look every period of the recording, agree with the
// hypervisor's prints; and its predictions of running vCPUs are better than that nothing changes.
func TestRecordedTraces(t *testing.T) {
	for _, c := range []struct {
		name  string
		every int     // one in so many prints corrects the credits
		signs float64 // required fraction of equal signs
		off   time.Duration
	}{
		{"credit-mixed", 1, 0.95, 2 * time.Millisecond}, {"credit-mixed", 1000, 0.95, 2 * time.Millisecond},
		{"credit-capped", 1, 0.95, 3 * time.Millisecond}, {"credit-pair", 1, 0.95, 3 * time.Millisecond},
		{"credit2-pair", 1, 0.95, time.Millisecond},
	} {
		r, dumps := recording(t, c.name)
		f := newFake()
		scheduler, period := control.Credit, 30*time.Millisecond
		if strings.HasPrefix(c.name, "credit2") {
			scheduler, period = control.Credit2, 10*time.Millisecond
		}
		pair := strings.HasSuffix(c.name, "pair")
		if f.pool(scheduler, 0, 1); pair {
			f.pools[0].CPUs = []int{0}
			f.pool(scheduler, 1)
		}
		for _, d := range dumps {
			for _, v := range d.VCPUs {
				if _, known := f.params[v.ID.Domain]; !known {
					pool := uint32(0)
					if pair && v.ID.Domain != 0 {
						pool = 1
					}
					f.domain(v.ID.Domain, pool, 0, 2)
				}
				f.params[v.ID.Domain] = control.Params{Weight: uint16(v.Weight), Cap: uint16(v.Cap)}
			}
		}
		x := f.cpus()
		x.Trace(trace.Follow(r.instant, func() (trace.Source, error) { return r, nil }))
		step := r.clock.Ticks(int64(period))
		var a Agreement
		for n, at := 0, r.all[0].At; at < r.all[len(r.all)-1].At; at += step {
			r.now = at
			if len(dumps) > 0 && uint64(dumps[0].to) < at {
				d := dumps[0]
				d.from, d.to = r.clock.Nanos(uint64(d.from)), r.clock.Nanos(uint64(d.to))
				if n > 0 {
					a = x.Compare(d.Dump, d.from)
				}
				if n%c.every == 0 {
					x.traced.printed = &d
				}
				n, dumps = n+1, dumps[1:]
			}
			now := r.instant().Nanos
			f.now = time.Unix(1000, 0).Add(time.Duration(now))
			x.Look(vcpu.Time(now), period, guests(1, 2, 3, 4))
		}
		rate, off := float64(a.Signs)/float64(max(a.VCPUs, 1)), a.Off/time.Duration(max(a.VCPUs, 1))
		asked, right, asNow := x.Foretold()
		t.Logf("%s, told one in %d: of %d signs %.3f agree, %v off in the mean; of %d foretold %.3f are right, as now %.3f", c.name, c.every,
			a.VCPUs, rate, off, asked, float64(right)/float64(asked), float64(asNow)/float64(asked))
		if a.VCPUs < 40 || rate < c.signs || off > c.off || asked < 100 || right < asNow {
			t.Error("that is too little, or too far off")
		}
	}
}
