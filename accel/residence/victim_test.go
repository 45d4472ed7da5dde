package residence

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Choose selects victims as documented.
func TestChoose(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		name   string
		owners []Owner
		short  uint64
		passed []Ask
		want   Ask
		none   bool
	}{
		{name: "nobody", none: true, short: 1},
		{name: "nobody has anything", owners: []Owner{{ID: 1, Domain: 1}}, short: 1, none: true},
		{name: "lowest priority", short: MiB, want: Ask{2, MiB, false},
			owners: []Owner{{ID: 1, Domain: 1, Priority: 5, Resident: MiB}, {ID: 2, Domain: 2, Priority: 4, Resident: MiB, Used: 9}}},
		{name: "least recently used", short: MiB, want: Ask{2, MiB, false},
			owners: []Owner{{ID: 1, Domain: 1, Resident: MiB, Used: 9}, {ID: 2, Domain: 2, Resident: MiB, Used: 8}}},
		{name: "lowest id", short: MiB, want: Ask{1, MiB, false},
			owners: []Owner{{ID: 2, Domain: 2, Resident: MiB}, {ID: 1, Domain: 1, Resident: MiB}}},
		{name: "one that has it all before others", short: 2 * MiB, want: Ask{2, 2 * MiB, false},
			owners: []Owner{{ID: 1, Domain: 1, Resident: MiB}, {ID: 2, Domain: 2, Priority: 7, Resident: 3 * MiB, Used: 9}}},
		{name: "nobody has it all", short: 9 * MiB, want: Ask{1, MiB, false},
			owners: []Owner{{ID: 1, Domain: 1, Resident: MiB}, {ID: 2, Domain: 2, Priority: 7, Resident: 3 * MiB, Used: 9}}},
		{name: "what was promised stays", short: 2 * MiB, want: Ask{2, 2 * MiB, false},
			owners: []Owner{{ID: 1, Domain: 1, Resident: 3 * MiB, Guarantee: 3 * MiB}, {ID: 2, Domain: 2, Priority: 7, Resident: 3 * MiB, Used: 9}}},
		{name: "a domain's processes have one guarantee", short: 2 * MiB, want: Ask{1, 2 * MiB, false},
			owners: []Owner{{ID: 1, Domain: 1, Resident: 2 * MiB, Guarantee: 2 * MiB}, {ID: 2, Domain: 1, Resident: 2 * MiB, Guarantee: 2 * MiB}}},
		{name: "unless nothing else is left", short: MiB, want: Ask{1, MiB, true},
			owners: []Owner{{ID: 1, Domain: 1, Resident: 3 * MiB, Guarantee: 3 * MiB}, {ID: 2, Domain: 2, Resident: 0}}},
		{name: "what never leaves is not asked for", short: 2 * MiB, want: Ask{2, MiB, false},
			owners: []Owner{{ID: 1, Domain: 1, Resident: 3 * MiB, Fixed: 3 * MiB}, {ID: 2, Domain: 2, Priority: 7, Resident: 3 * MiB, Fixed: 2 * MiB, Used: 9}}},
		{name: "who did not answer is passed over", short: MiB, want: Ask{2, MiB, false}, passed: []Ask{{Owner: 1}},
			owners: []Owner{{ID: 1, Domain: 1, Resident: 3 * MiB}, {ID: 2, Domain: 2, Resident: MiB, Used: 4}}},
	} {
		got, ok := Choose(c.owners, c.short, func(a Ask) bool { return slices.Contains(c.passed, a) })
		if ok == c.none || ok && got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, ok, c.want)
		}
	}
}

// owners decodes owners from arbitrary bytes.
func owners(data []byte) (all []Owner) {
	for i := 0; i+4 < len(data); i += 5 {
		all = append(all, Owner{ID: i, Domain: uint64(data[i] % 4), Priority: int(data[i+1] % 3), Resident: uint64(data[i+2]),
			Guarantee: uint64(data[i+3] % 128), Used: int64(data[i+4] % 8)})
	}
	return all
}

// For any owners, Choose returns one of them that has the requested bytes, independently of their order. It requests no
// guaranteed bytes while another owner exceeds its guarantee, and repeated requests get all evictable bytes.
func FuzzChoose(f *testing.F) {
	f.Add([]byte{1, 0, 10, 0, 1, 2, 0, 20, 15, 3}, uint16(12), uint64(1))
	f.Add([]byte{}, uint16(1), uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, short uint16, seed uint64) {
		if len(data) > 500 || short == 0 {
			return
		}
		all := owners(data)
		var sum uint64
		for _, o := range all {
			sum += o.Resident
		}
		shuffled := slices.Clone(all)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for left := min(uint64(short), sum); left > 0; {
			a, ok := Choose(all, left, nil)
			b, _ := Choose(shuffled, left, nil)
			if !ok || a != b {
				t.Fatalf("%+v, %v in one order, %+v in another", a, ok, b)
			}
			i := slices.IndexFunc(all, func(o Owner) bool { return o.ID == a.Owner })
			if i < 0 || a.Bytes == 0 || a.Bytes > all[i].Resident || a.Bytes > left {
				t.Fatalf("%+v of %+v", a, all)
			}
			if a.Pressing && slices.ContainsFunc(all, func(o Owner) bool { return o.Resident > 0 && Excess(all, o.Domain) > 0 }) {
				t.Fatalf("%+v, while somebody has more than was promised: %+v", a, all)
			}
			if !a.Pressing && a.Bytes > Excess(all, all[i].Domain) {
				t.Fatalf("%+v takes what was promised", a)
			}
			all[i].Resident -= a.Bytes
			j := slices.IndexFunc(shuffled, func(o Owner) bool { return o.ID == a.Owner })
			shuffled[j].Resident -= a.Bytes
			left -= a.Bytes
		}
	})
}

// Of a process's own objects, choose evicts the least recently used one that is large enough, else several. It evicts
// no fixed object, and no more than limit.
func FuzzChooseObjects(f *testing.F) {
	f.Add([]byte{9, 1, 0, 7, 2, 0}, uint16(8), uint16(100))
	f.Fuzz(func(t *testing.T, data []byte, want, limit uint16) {
		if want == 0 {
			return
		}
		var all []*object
		var movable uint64
		for i := 0; i+2 < min(len(data), 300); i += 3 {
			o := &object{addr: uint64(i), bytes: uint64(data[i]) + 1, used: uint64(data[i+1]), home: home(data[i+2] % 3), fixed: data[i+2] > 200}
			if all = append(all, o); o.home == device && !o.fixed {
				movable += o.bytes
			}
		}
		got := choose(all, uint64(want), uint64(limit))
		var sum uint64
		for _, o := range got {
			if o.fixed || o.home != device {
				t.Fatalf("%+v is moved", o)
			}
			sum += o.bytes
		}
		switch {
		case sum > uint64(limit):
			t.Fatalf("%d bytes, at most %d allowed", sum, limit)
		case sum < uint64(want) && uint64(limit) >= movable && sum != movable:
			t.Fatalf("%d bytes of %d, want %d", sum, movable, want)
		case len(got) > 1 && slices.ContainsFunc(all, func(o *object) bool {
			return o.home == device && !o.fixed && o.bytes >= uint64(want) && o.bytes <= uint64(limit)
		}):
			t.Fatal("several go where one would do")
		}
	})
}
