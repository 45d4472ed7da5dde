package schedule

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"pegasus/hypervisor/xen/dump"
	"pegasus/hypervisor/xen/trace"
)

const ms = 1000000

// recording is a trace of a machine with two CPUs over some seconds, in the folder testdata: of Dom0, a domain with
// two vCPUs that spin, one of twice the weight that does, one that rests and one that wakes often; in `capped`, the
// one of twice the weight has a cap of 40 %. In `pair`, two that spin have a CPU for themselves. In `credit` and
// `credit2` the host was busy. Beside the trace there are the hypervisor's prints during it.
type recording struct {
	records []trace.Record
	clock   *trace.Clock
	dumps   []printed
}

// printed is a dump that was made between two times.
type printed struct {
	*dump.Dump
	from, to int64
}

func unpack(t testing.TB, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile("testdata/" + name + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t testing.TB, name string) *recording {
	t.Helper()
	var r recording
	var err error
	if r.records, err = trace.Parse(unpack(t, name+".trace")); err != nil {
		t.Fatal(err)
	}
	if r.clock, err = trace.Calibrate(r.records); err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(string(unpack(t, name+".dumps")), "dump ")[1:] {
		var from, to uint64
		fmt.Sscan(text, &from, &to)
		d, err := dump.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		r.dumps = append(r.dumps, printed{d, r.clock.Nanos(from), r.clock.Nanos(to)})
	}
	return &r
}

// play makes a history take all records, and calls each with the time of each record, before it.
func (r *recording) play(h *History, each func(at int64)) {
	for i := range r.records {
		at := r.clock.Nanos(r.records[i].At)
		each(at)
		h.Take(at, &r.records[i])
	}
}

// A CPU runs one vCPU at once, a vCPU runs on one CPU at once, and each one's times add up.
func TestHistory(t *testing.T) {
	for _, name := range []string{"credit", "credit2", "credit-mixed", "credit-capped"} {
		r := load(t, name)
		ends, byVCPU := make(map[int]int64), make(map[trace.VCPU]int64)
		ran := make(map[trace.VCPU]int64)
		h := NewHistory(func(run Run) {
			if run.From < ends[run.CPU] || run.From < byVCPU[run.VCPU] || run.To <= run.From {
				t.Errorf("%s: %+v begins before %v or %v", name, run, ends[run.CPU], byVCPU[run.VCPU])
			}
			ends[run.CPU], byVCPU[run.VCPU] = run.To, run.To
			ran[run.VCPU] += run.To - run.From
		})
		begins := make(map[trace.VCPU]int64)
		r.play(h, func(at int64) {
			for _, v := range h.VCPUs() {
				if begins[v.ID] == 0 {
					begins[v.ID] = max(h.Now(), 1)
				}
			}
		})
		h.Flush()
		if len(h.VCPUs()) < 6 || len(h.CPUs()) != 2 || len(r.dumps) < 3 {
			t.Errorf("%s: %d vCPUs on %d CPUs, %d dumps", name, len(h.VCPUs()), len(h.CPUs()), len(r.dumps))
		}
		for _, v := range h.VCPUs() {
			did, waited, slept := v.Did(h.Now())
			if did != ran[v.ID] {
				t.Errorf("%s: %v ran %d ns, by its runs %d", name, v.ID, did, ran[v.ID])
			}
			if known := h.Now() - begins[v.ID]; did+waited+slept > known || did+waited+slept < known*98/100 {
				t.Errorf("%s: %v did something for %d ms of %d", name, v.ID, (did+waited+slept)/ms, known/ms)
			}
		}
		for n, c := range h.CPUs() {
			if left, ok := c.SliceLeft(h.Now()); ok && left > 30*ms {
				t.Errorf("%s: CPU %d has %d ns left", name, n, left)
			}
		}
	}
}

// Running times in the hypervisor's records equal ours: it reads its clock some time before it writes a record, which
// takes long now and then where it is emulated itself.
func TestRunsAgree(t *testing.T) {
	for _, name := range []string{"credit", "credit2"} {
		r := load(t, name)
		began := make(map[int]int64)
		var off []int64
		for i := range r.records {
			rec := &r.records[i]
			at := r.clock.Nanos(rec.At)
			switch rec.Event {
			case trace.SwitchNext:
				began[rec.CPU] = at
			case trace.SwitchPrev:
				if from, ok := began[rec.CPU]; ok {
					d := at - from - int64(rec.Words[2])
					off = append(off, max(d, -d))
				}
			}
		}
		slices.Sort(off)
		n := len(off)
		t.Logf("%s: of %d runs half are within %d µs of what is noted, and nine in ten within %d µs", name, n, off[n/2]/1000, off[n*9/10]/1000)
		if n < 500 || off[n/2] > ms/5 {
			t.Errorf("%s: half of %d runs are within %d µs", name, n, off[n/2]/1000)
		}
	}
}

// Under Credit2 the trace's credits are those that the hypervisor prints: printing takes a while, so a credit that
// the vCPU had meanwhile.
func TestCreditIsWhatIsPrinted(t *testing.T) {
	r := load(t, "credit2")
	h := NewHistory(nil)
	compared, same := 0, 0
	had := make([]map[trace.VCPU][]int64, len(r.dumps))
	r.play(h, func(at int64) {
		for i, d := range r.dumps {
			if had[i] == nil && at >= d.from || had[i] != nil && at <= d.to+ms {
				if had[i] == nil {
					had[i] = make(map[trace.VCPU][]int64)
				}
				for _, v := range h.VCPUs() {
					if v.CreditKnown {
						had[i][v.ID] = append(had[i][v.ID], v.Credit)
					}
				}
			}
		}
	})
	for i, d := range r.dumps {
		for _, v := range d.VCPUs {
			if len(had[i][v.ID]) == 0 { // no record of it yet
				continue
			}
			if compared++; slices.Contains(had[i][v.ID], v.Credit) {
				same++
			}
		}
	}
	t.Logf("%d of %d credits are the same", same, compared)
	if compared < 20 || same*100 < compared*95 {
		t.Errorf("%d of %d credits are the same", same, compared)
	}
}

// Between records, a credit follows the vCPU's running time: at its next record it equals the recorded one, except
// for the time that passes, under emulation, between the hypervisor's reads of its clock.
func TestCreditBetweenRecords(t *testing.T) {
	r := load(t, "credit2")
	h := NewHistory(nil)
	var off []int64
	for i := range r.records {
		rec := &r.records[i]
		at := r.clock.Nanos(rec.At)
		if rec.Event == trace.CreditBurn && int32(rec.Words[3]) > 0 {
			v := h.VCPU(trace.Packed(rec.Words[0]))
			if v != nil && v.State == trace.Runs && v.perNano.ns > 0 {
				left, _ := v.Left(at)
				d := left - int64(int32(rec.Words[1]))
				off = append(off, max(d, -d))
			}
		}
		h.Take(at, rec)
	}
	slices.Sort(off)
	n := len(off)
	t.Logf("of %d credits half are within %d µs of what is noted, and nine in ten within %d µs", n, off[n/2]/1000, off[n*9/10]/1000)
	if n < 100 || off[n/2] > ms/2 {
		t.Errorf("half of %d credits are within %d µs", n, off[n/2]/1000)
	}
}

// Predictions from recorded traces, beside the simplest one. Their accuracy is printed; required is that they are
// deterministic, that they add up, and that they aren't worse than that nothing changes.
func TestPredict(t *testing.T) {
	for _, s := range []struct {
		name  string
		worse float64 // by how much the hit rate may be below that of no change
	}{
		{"credit", 1}, {"credit-mixed", 0}, {"credit-capped", 0}, {"credit-pair", 0}, {"credit2", 1}, {"credit2-pair", 0},
	} {
		r := load(t, s.name)
		var verdicts [2][]Verdict
		period := int64(30 * ms)
		for i := range verdicts {
			p := r.part(s.name)
			rules := Rules{Slice: 30 * ms, Least: ms, Wakes: true, May: p.may}
			before := func(*History) {}
			var shadow *CreditModel
			if strings.HasPrefix(s.name, "credit2") {
				rules.Credit2, rules.Slice, period = true, 10*ms, 10*ms
			} else {
				shadow, before = r.shadowed(p)
				rules.Priority = func(id trace.VCPU) int { _, priority, _ := shadow.Credit(id); return priority }
			}
			predict := func(h *History, period int64) Prediction {
				if shadow != nil {
					rules.Hands = shadow.Hands()
					rules.Gets = func(id trace.VCPU) int64 { return shadow.Gets(id, h.Now()) }
				}
				said := h.Predict(rules, period)
				all := int64(0)
				for _, ran := range said.Runs {
					if all += ran; ran > period {
						t.Fatalf("%s: a vCPU runs %d ns of %d", s.name, ran, period)
					}
				}
				if all > period*int64(len(h.CPUs())) {
					t.Fatalf("%s: all run %d ns on %d CPUs", s.name, all, len(h.CPUs()))
				}
				return said
			}
			verdicts[i] = Judge(r.records, r.clock, period, 10, before, predict, AsNow)
		}
		if !slices.Equal(verdicts[0], verdicts[1]) {
			t.Errorf("%s: %+v, then %+v", s.name, verdicts[0], verdicts[1])
		}
		said, asNow := verdicts[0][0], verdicts[0][1]
		t.Logf("%s, %d ms, of %d: as foretold %.1f %% are right, mean error of a vCPU's part %.3f; as now %.1f %%, %.3f",
			s.name, period/ms, said.Asked, 100*said.Rate(), said.Error, 100*asNow.Rate(), asNow.Error)
		if said.Asked < 100 || said.Rate() < asNow.Rate()-s.worse {
			t.Errorf("%s: %+v, %+v", s.name, said, asNow)
		}
	}
}

// BenchmarkHistory measures the decoding and taking of a record. (A switch has about five.)
func BenchmarkHistory(b *testing.B) {
	r := load(b, "credit")
	var raw []byte
	for i := range r.records {
		raw = trace.Append(raw, &r.records[i])
	}
	for b.Loop() {
		h := NewHistory(func(Run) {})
		trace.Decode(0, 0, raw, func(rec *trace.Record) { h.Take(r.clock.Nanos(rec.At), rec) })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(r.records)), "ns/record")
}
