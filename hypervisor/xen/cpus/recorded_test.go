package cpus

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

// fake is a hypervisor with the answers of a test.
type fake struct {
	pools   []control.Pool
	domains []control.Domain
	params  map[uint16]control.Params
	vcpus   map[uint16][]control.VCPU
	slice   time.Duration
	now     time.Time
	broken  error
	mute    map[uint32]error // errors for vCPUs of that number
	calls   int
}

func newFake() *fake {
	return &fake{slice: 30 * time.Millisecond, params: make(map[uint16]control.Params), vcpus: make(map[uint16][]control.VCPU), now: time.Unix(1000, 0)}
}

// pool adds a pool.
func (f *fake) pool(s control.Scheduler, cpus ...int) {
	f.pools = append(f.pools, control.Pool{ID: uint32(len(f.pools)), Scheduler: s, CPUs: cpus})
}

// domain adds a domain in a pool, with idle vCPUs.
func (f *fake) domain(id uint16, pool uint32, weight uint16, vcpus int) {
	f.domains = append(f.domains, control.Domain{ID: id, Pool: pool, VCPUs: vcpus, MaxVCPU: vcpus - 1})
	f.params[id] = control.Params{Weight: weight}
	for range vcpus {
		f.vcpus[id] = append(f.vcpus[id], control.VCPU{Online: true, Blocked: true})
	}
}

// remove ends a domain.
func (f *fake) remove(id uint16) {
	for i, d := range f.domains {
		if d.ID == id {
			f.domains = append(f.domains[:i:i], f.domains[i+1:]...)
			delete(f.params, id)
			delete(f.vcpus, id)
			return
		}
	}
}

func (f *fake) Domains() ([]control.Domain, error) { f.calls++; return f.domains, f.broken }
func (f *fake) Pools() ([]control.Pool, error)     { f.calls++; return f.pools, f.broken }

func (f *fake) Slice(p control.Pool) (slice, least time.Duration, err error) {
	if !p.Scheduler.Known() {
		return 0, 0, syscall.EOPNOTSUPP
	}
	if p.Scheduler == control.Credit2 {
		return 0, time.Millisecond, f.broken
	}
	return f.slice, time.Millisecond, f.broken
}

func (f *fake) SetSlice(p control.Pool, slice time.Duration) error {
	if p.Scheduler != control.Credit {
		return fmt.Errorf("CPU pool %d is of %v, which has no slice", p.ID, p.Scheduler)
	}
	f.slice = slice
	return f.broken
}

func (f *fake) VCPU(domain uint16, number uint32) (control.VCPU, error) {
	f.calls++
	all := f.vcpus[domain]
	if int(number) >= len(all) {
		return control.VCPU{}, syscall.ESRCH
	}
	return all[number], errors.Join(f.broken, f.mute[number])
}

// scheduled returns an error unless a domain has parameters of the scheduler.
func (f *fake) scheduled(s control.Scheduler, id uint16) error {
	f.calls++
	for _, d := range f.domains {
		if d.ID == id {
			if f.pools[d.Pool].Scheduler != s {
				return syscall.EINVAL
			}
			return f.broken
		}
	}
	return syscall.ESRCH
}

func (f *fake) Params(s control.Scheduler, domain uint16) (control.Params, error) {
	return f.params[domain], f.scheduled(s, domain)
}

func (f *fake) SetWeight(s control.Scheduler, domain, weight uint16) error {
	if err := f.scheduled(s, domain); err != nil {
		return err
	}
	p := f.params[domain]
	p.Weight = weight
	f.params[domain] = p
	return nil
}

func (f *fake) SetCap(s control.Scheduler, domain, percent uint16, _ int) error {
	if err := f.scheduled(s, domain); err != nil {
		return err
	}
	p := f.params[domain]
	p.Cap = percent
	f.params[domain] = p
	return nil
}

var discard = slog.New(slog.DiscardHandler)

func (f *fake) cpus() *CPUs {
	c := NewCPUs(f, discard)
	c.clock, c.mine = func() time.Time { return f.now }, func() int { return -1 }
	return c
}

func guests(ids ...uint16) (all []hypervisor.Guests) {
	for _, id := range ids {
		all = append(all, hypervisor.Guests{Domain: fmt.Sprint("d", id), VM: true, Xen: id})
	}
	return all
}

// replay plays a recording of a hypervisor, and calls left for each of its lines of remaining credits, with the
// schedule sampled just before.
func replay(t *testing.T, name string, f *fake, c *CPUs, of []hypervisor.Guests, left func(credits map[string]int64, seen []vcpu.Schedule)) {
	t.Helper()
	text, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	began, was := f.now, int64(0)
	var seen []vcpu.Schedule
	for lines := bufio.NewScanner(text); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		var at int64
		fmt.Sscan(fields[1], &at)
		credits := make(map[string]int64)
		for _, field := range fields[2:] {
			words := strings.Split(field, ":")
			if fields[0] == "left" {
				var n int64
				fmt.Sscan(words[1], &n)
				credits[words[0]] = n
				continue
			}
			var domain uint16
			var number, cpu int
			var ran int64
			fmt.Sscanf(words[0], "%d.%d", &domain, &number)
			fmt.Sscan(words[1], &cpu)
			fmt.Sscan(words[3], &ran)
			f.vcpus[domain][number] = control.VCPU{Online: true, Running: words[2] == "R", Blocked: words[2] == "b", CPU: cpu, CPUTime: time.Duration(ran) * time.Microsecond}
		}
		if fields[0] == "left" {
			left(credits, seen)
			continue
		}
		f.now = began.Add(time.Duration(at) * time.Microsecond)
		period := time.Duration(at-was) * time.Microsecond
		was = at
		seen, _ = c.Look(vcpu.Time(f.now.UnixNano()), max(period, time.Millisecond), of)
	}
}

// Computed credits agree with those that a real Xen printed at a key press: in sign where they exceed the
// credit that a vCPU burns between two ticks of Xen, by which the hypervisor's own figure is out of date.
func TestCreditsOfARealXen(t *testing.T) {
	f := newFake()
	f.pool(control.Credit, 0)
	f.pool(control.Credit, 1)
	f.domain(0, 0, 256, 2)
	f.domain(1, 1, 256, 1)
	f.domain(2, 1, 512, 1)
	const tick = 100 // in Xen's credits
	agree, n, beyond, agreeBeyond, off, dumps := 0, 0, 0, 0, int64(0), 0
	replay(t, "two.txt", f, f.cpus(), guests(1, 2), func(credits map[string]int64, seen []vcpu.Schedule) {
		if dumps++; dumps <= 3 { // accounts start without a history
			return
		}
		for i, s := range seen {
			xen := credits[fmt.Sprintf("%d.0", i+1)]
			same := 0
			if (xen >= 0) == (s.Remaining >= 0) {
				same = 1
			}
			n, agree, off = n+1, agree+same, off+max(xen-s.Remaining, s.Remaining-xen)
			if max(xen, -xen) > tick {
				beyond, agreeBeyond = beyond+1, agreeBeyond+same
			}
		}
	})
	all, clear := float64(agree)/float64(n), float64(agreeBeyond)/float64(beyond)
	t.Logf("the sign agrees in %.3f of %d, and in %.3f of the %d beyond a tick; %d credits off in the mean", all, n, clear, beyond, off/int64(n))
	if n < 200 || all < 0.8 || clear < 0.95 || off/int64(n) > 90 {
		t.Error("that is less than it was")
	}
}
