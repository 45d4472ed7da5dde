package control

import (
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A fake is a hypervisor of one release, with some domains of one vCPU each.
type fake struct {
	layout
	scheduler Scheduler
	slice     uint32 // ms
	least     uint32 // µs
	mem       []byte
	domains   []uint16
	params    map[uint16]Params
}

const fakeAddress = 0x7f0000000000

func newFake(l layout, domains int) *fake {
	f := &fake{layout: l, scheduler: Credit, slice: 30, least: 1000, mem: make([]byte, 17*4096), params: map[uint16]Params{}}
	for i := range domains {
		f.domains = append(f.domains, uint16(3*i))
		f.params[uint16(3*i)] = Params{Weight: 256}
	}
	return f
}

func (f *fake) Memory() []byte  { return f.mem }
func (f *fake) Address() uint64 { return fakeAddress }

func (f *fake) Call(op uint64, args ...uint64) (int64, error) {
	if op == opVersion {
		return 4<<16 | 17, nil
	}
	if args[0] != fakeAddress {
		return 0, syscall.EFAULT
	}
	cmd, version := le.Uint32(f.mem), le.Uint32(f.mem[4:])
	switch {
	case op == opSysctl && version == f.sysctl:
		return f.doSysctl(cmd, f.mem[sysctlBody:])
	case op == opDomctl && version == f.domctl:
		return f.doDomctl(cmd, le.Uint16(f.mem[8:]), f.mem[domctlBody:])
	case op == opSysctl || op == opDomctl:
		return 0, syscall.EACCES
	default:
		return 0, syscall.ENOSYS
	}
}

func (f *fake) doSysctl(cmd uint32, b []byte) (int64, error) {
	switch cmd {
	case 4:
		le.PutUint32(b, uint32(f.scheduler))
	case 6:
		n := 0
		for _, id := range f.domains {
			if id < le.Uint16(b) || n == int(le.Uint32(b[4:])) {
				continue
			}
			out := f.mem[le.Uint64(b[8:])-fakeAddress+uint64(n*f.domainInfoBytes):]
			le.PutUint16(out, id)
			le.PutUint32(out[4:], DomainRunning)
			le.PutUint64(out[56:], uint64(time.Second)*uint64(id+1))
			le.PutUint32(out[64:], 1)
			n++
		}
		le.PutUint32(b[16:], uint32(n))
	case 18:
		at := f.mem[le.Uint64(b[24:])-fakeAddress:]
		switch id := le.Uint32(b[4:]); {
		case le.Uint32(b) != 3 || le.Uint32(b[32:]) != 4096:
			return 0, syscall.EINVAL
		case id == 0:
			le.PutUint32(b[8:], uint32(f.scheduler))
			at[0] = 0b1011
		case id <= 4:
			le.PutUint32(b[4:], 4)
			le.PutUint32(b[8:], uint32(Credit2))
			at[8] = 0b100
		default:
			return 0, syscall.ENOENT
		}
	case 19:
		if Scheduler(le.Uint32(b[4:])) != f.scheduler || le.Uint32(b) != 0 {
			return 0, syscall.EINVAL
		}
		if le.Uint32(b[8:]) == schedulerPut {
			f.slice, f.least = le.Uint32(b[16:]), le.Uint32(b[20:])
			break
		}
		le.PutUint32(b[16:], f.slice)
		le.PutUint32(b[20:], f.least)
	}
	return 0, nil
}

func (f *fake) doDomctl(cmd uint32, id uint16, b []byte) (int64, error) {
	p, ok := f.params[id]
	if !ok {
		return 0, syscall.ESRCH
	}
	switch cmd {
	case 14:
		if le.Uint32(b) != 0 {
			return 0, syscall.EINVAL
		}
		b[4], b[6] = 1, 1
		le.PutUint64(b[8:], uint64(time.Minute))
		le.PutUint32(b[16:], 1)
	case 16:
		if Scheduler(le.Uint32(b)) != f.scheduler {
			return 0, syscall.EINVAL
		}
		if le.Uint32(b[4:]) == schedulerGet {
			le.PutUint16(b[8:], p.Weight)
			le.PutUint16(b[10:], p.Cap)
			return 0, nil
		}
		if w := le.Uint16(b[8:]); w != 0 {
			p.Weight = w
		}
		if c := le.Uint16(b[10:]); c != 0xffff {
			p.Cap = c
		}
		f.params[id] = p
	}
	return 0, nil
}

// Every supported release is detected, and any number of its domains is read.
func TestReleases(t *testing.T) {
	for _, l := range layouts {
		f := newFake(l, 1500)
		x, err := New(f)
		if err != nil || x.layout != l || x.Minor != 17 {
			t.Fatalf("%+v: %+v, %v", l, x, err)
		}
		all, err := x.Domains()
		if err != nil || len(all) != len(f.domains) {
			t.Fatalf("%d domains, %v", len(all), err)
		}
		for i, d := range all {
			if d.ID != f.domains[i] || d.Flags != DomainRunning || d.VCPUs != 1 || d.CPUTime != time.Second*time.Duration(d.ID+1) {
				t.Fatalf("%+v", d)
			}
		}
		if v, err := x.VCPU(3, 0); err != nil || v != (VCPU{Online: true, Running: true, CPUTime: time.Minute, CPU: 1}) {
			t.Errorf("%+v, %v", v, err)
		}
		if slice, least, err := x.Slice(Pool{Scheduler: Credit}); err != nil || slice != 30*time.Millisecond || least != time.Millisecond {
			t.Errorf("%v, %v, %v", slice, least, err)
		}
		if pools, err := x.Pools(); err != nil || !reflect.DeepEqual(pools, []Pool{{0, Credit, []int{0, 1, 3}}, {4, Credit2, []int{66}}}) {
			t.Errorf("%+v, %v", pools, err)
		}
	}
	if _, err := New(newFake(layout{0x99, 0x99, 112}, 1)); err == nil || !strings.Contains(err.Error(), "Xen 4.17") {
		t.Errorf("a release of the future: %v", err)
	}
}

// A slice is set without other changes, and only where Xen's scheduler has one.
func TestSlice(t *testing.T) {
	f := newFake(layouts[4], 2)
	x, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	p := Pool{Scheduler: Credit}
	if err := x.SetSlice(p, 5*time.Millisecond); err != nil || f.slice != 5 || f.least != 1000 {
		t.Errorf("%v: %d ms, at least %d µs", err, f.slice, f.least)
	}
	f.least = 2000
	for _, slice := range []time.Duration{-time.Millisecond, 0, time.Millisecond, 2500 * time.Microsecond, time.Second + time.Millisecond, time.Hour} {
		if err := x.SetSlice(p, slice); err == nil || !strings.Contains(err.Error(), "whole milliseconds from 2ms, for which a vCPU runs at least, to 1s") || f.slice != 5 {
			t.Errorf("%v: %v, and it is %d ms", slice, err, f.slice)
		}
	}
	f.scheduler = Credit2
	if err := x.SetSlice(Pool{Scheduler: Credit2}, 5*time.Millisecond); err == nil || !strings.Contains(err.Error(), "credit2, which has no slice") {
		t.Error(err)
	}
}

// Xen accepts any weight; we don't.
func TestParams(t *testing.T) {
	f := newFake(layouts[4], 2)
	x, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want Params) {
		t.Helper()
		if p, err := x.Params(Credit, 3); err != nil || p != want {
			t.Errorf("%+v, %v", p, err)
		}
	}
	expect(Params{256, 0})
	if err := x.SetWeight(Credit, 3, 512); err != nil {
		t.Error(err)
	}
	if err := x.SetCap(Credit, 3, 50, 1); err != nil {
		t.Error(err)
	}
	expect(Params{512, 50})
	if err := x.SetCap(Credit, 3, 0, 1); err != nil {
		t.Error(err)
	}
	expect(Params{512, 0})
	for what, err := range map[string]error{
		"want 1 to 65535":    x.SetWeight(Credit, 3, 0),
		"at most 100 %":      x.SetCap(Credit, 3, 101, 1),
		"no such process":    x.SetWeight(Credit, 77, 1),
		"invalid argument":   x.SetWeight(Credit2, 3, 1),
		"domain 9000 under ": x.SetWeight(Credit, 9000, 1),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want %q", err, what)
		}
	}
}

// A hypervisor with invalid answers is rejected.
type liar struct{ *fake }

func (l liar) Call(op uint64, args ...uint64) (int64, error) {
	r, err := l.fake.Call(op, args...)
	if op == opSysctl && le.Uint32(l.mem) == 6 {
		le.PutUint32(l.mem[sysctlBody+16:], 1<<31)
	}
	return r, err
}

func TestNonsense(t *testing.T) {
	x, err := New(liar{newFake(layouts[0], 1)})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := x.Domains(); err == nil {
		t.Errorf("%d domains", len(all))
	}
}

// A domain that is being created, or is dying, has no vCPUs: Xen writes a special number as its highest one, which
// must not cause four billion requests.
func TestDomainWithoutVCPUs(t *testing.T) {
	b := make([]byte, 112)
	le.PutUint32(b[68:], 0xffffffff)
	if d := parseDomain(b); d.MaxVCPU != -1 {
		t.Errorf("its highest vCPU is %d", d.MaxVCPU)
	}
}
