package policies

import (
	"testing"
	"time"
)

// debtor returns a scheduler with two domains, of which 1 has work all the time and 2 has used a burst
// meanwhile.
func debtor(t *testing.T, name string, burst time.Duration) *Scheduler {
	s := NewScheduler(mustNew(t, name, Production))
	for id := ID(1); id <= 2; id++ {
		s.Step(0, &Event{Kind: Attach, Domain: Domain{ID: id}})
		s.Step(0, &Event{Kind: Wake, Domain: Domain{ID: id}, Signal: Arrived})
		s.Step(0, &Event{Kind: Head, Domain: Domain{ID: id}, Class: Compute, Request: Request{Seq: 1, Predicted: ms, Known: true}})
	}
	s.Ready(0)
	s.Step(1, &Event{Kind: Charge, Domain: Domain{ID: 2}, Used: Usage{Compute: burst, Requests: 1}})
	return s
}

// ahead returns by how much domain 2 got more than domain 1, according to the accounts.
func (s *Scheduler) ahead() time.Duration {
	a, _ := s.Balances(1)
	b, _ := s.Balances(2)
	return a[0] + a[1] - b[0] - b[1]
}

const farBurst = 20 * time.Second

// TestAccountsStay: accounts stay while a domain is absent, and no longer than they matter.
func TestAccountsStay(t *testing.T) {
	for _, name := range shared {
		s := debtor(t, name, farBurst)
		two := Domain{ID: 2}
		for range 3 {
			s.Step(2, &Event{Kind: Detach, Domain: two})
			if got := s.ahead(); got < farBurst-time.Second {
				t.Errorf("%s: absent, it is ahead by %v after a burst of %v", name, got, farBurst)
			}
			if _, ok := s.Stat(2); ok || len(s.Stats(nil)) != 1 || len(s.Absent(nil)) != 1 {
				t.Errorf("%s: an absent domain is listed", name)
			}
			s.Ready(3)
			s.Step(4, &Event{Kind: Attach, Domain: two})
			s.Step(4, &Event{Kind: Wake, Domain: two, Signal: Arrived})
			s.Ready(5)
			if got := s.ahead(); got < farBurst-time.Second {
				t.Errorf("%s: back, it is ahead by %v after a burst of %v", name, got, farBurst)
			}
		}
		s.Step(6, &Event{Kind: Detach, Domain: two})
		three := Domain{ID: 3} // with which 1 competes
		s.Step(6, &Event{Kind: Attach, Domain: three})
		s.Step(6, &Event{Kind: Wake, Domain: three, Signal: Arrived})
		now := Time(6)
		for seq := range uint64(20000) {
			for id := ID(1); id <= 3; id += 2 {
				s.Step(now, &Event{Kind: Charge, Domain: Domain{ID: id}, Used: Usage{Compute: 5 * ms, Requests: 1}})
				s.Step(now, &Event{Kind: Head, Domain: Domain{ID: id}, Class: Compute, Request: Request{Seq: seq + 2, Predicted: 5 * ms, Known: true}})
			}
			now = now.Add(10 * ms)
			s.Ready(now)
		}
		if left := s.Absent(nil); len(left) > 0 {
			t.Errorf("%s: the others have got 200 s, and it still owes: %v", name, left)
		}
	}
}

// TestSwitchKeepsDebt: debt stays over every change of policy, also to one that keeps no accounts.
func TestSwitchKeepsDebt(t *testing.T) {
	for _, from := range shared {
		for _, to := range shared {
			for _, by := range []string{"", "fifo"} {
				for _, absent := range []bool{false, true} {
					s := debtor(t, from, farBurst)
					if absent {
						s.Step(2, &Event{Kind: Detach, Domain: Domain{ID: 2}})
					}
					if by != "" {
						s.Use(3, mustNew(t, by, Production))
					}
					s.Use(4, mustNew(t, to, Production))
					// Claims are not carried to policies without claims.
					if got := s.ahead(); got < farBurst*45/100 {
						t.Errorf("%s to %s by %q, absent %v: ahead by %v after a burst of %v", from, to, by, absent, got, farBurst)
					}
				}
			}
		}
	}
}

// TestAccountsOfTwoAreCarried: debt stays when one account becomes two, or two one.
func TestAccountsOfTwoAreCarried(t *testing.T) {
	for _, name := range shared {
		s := debtor(t, name, farBurst)
		two, err := NewAccounts(name, Options{Accounts: MRQ})
		if err != nil {
			t.Fatal(err)
		}
		s.Use(2, two...)
		if got := s.ahead(); got < farBurst*45/100 {
			t.Errorf("%s: with two accounts it is ahead by %v", name, got)
		}
		s.Use(3, mustNew(t, name, Production))
		if got := s.ahead(); got < farBurst*45/100 {
			t.Errorf("%s: with one again it is ahead by %v", name, got)
		}
	}
}

// TestAccountsHoldHugeDebt: the possible use of 64 processes with the greatest kernel_timeout, under the
// greatest and the least credits, is neither forgotten nor overflows.
func TestAccountsHoldHugeDebt(t *testing.T) {
	for _, name := range shared {
		for _, credits := range []Credits{1, 256, 65535} {
			s := debtor(t, name, 0)
			s.Step(1, &Event{Kind: Attach, Domain: Domain{ID: 2, Credits: credits, CPU: credits}})
			for range 12 {
				s.Step(2, &Event{Kind: Charge, Domain: Domain{ID: 2}, Used: Usage{Compute: 24 * time.Hour}})
				s.Ready(2)
			}
			others := 256 * time.Duration(256) / (256 + time.Duration(credits)) // of 256: owed to the others
			if got := s.ahead(); got < 11*24*time.Hour/256*others {
				t.Errorf("%s, %d credits: after 12 days it is ahead by %v", name, credits, got)
			}
			for range 100 {
				s.Step(3, &Event{Kind: Charge, Domain: Domain{ID: 2}, Used: Usage{Compute: maxDebt}})
				s.Ready(3)
			}
			if got := s.ahead(); got < maxDebt/2/256*others {
				t.Errorf("%s, %d credits: after years it is ahead by %v", name, credits, got)
			}
		}
	}
}

// TestPartsMakeARequest: use that is charged in parts, over several leases, counts as one request's where its
// length is learned.
func TestPartsMakeARequest(t *testing.T) {
	l := mustNew(t, "lag", Production).(*lag)
	l.Attach(0, Domain{ID: 1})
	d := NewScheduler(mustNew(t, "drr", Production))
	for id := ID(1); id <= 2; id++ {
		d.Step(0, &Event{Kind: Attach, Domain: Domain{ID: id}})
	}
	d.Ready(0)
	unit := d.accounts[0].policy.(*queue).domains.tenants[1]
	now := Time(0)
	for seq := range uint64(200) {
		for part := range 4 {
			u := Usage{Compute: 40 * ms, Requests: part / 3}
			l.Charge(0, 1, u)
			for id := ID(1); id <= 2; id++ { // 2 waits, so a lease ends with each part
				r := Request{Seq: seq*8 + uint64(part) + 1, Predicted: ms, Threads: 1000}
				d.Step(now, &Event{Kind: Wake, Domain: Domain{ID: id}, Signal: Arrived})
				d.Step(now, &Event{Kind: Head, Domain: Domain{ID: id}, Class: Compute, Request: r})
			}
			for served := false; !served; now = max(now.Add(ms), min(d.Next(), now.Add(time.Second))) {
				for _, a := range d.Ready(now) {
					if a.Open && a.Domain == 2 {
						d.Step(now, &Event{Kind: Charge, Domain: Domain{ID: 2}, Used: Usage{Compute: ms, Requests: 1}})
					} else if a.Open {
						d.Step(now, &Event{Kind: Charge, Domain: Domain{ID: 1}, Used: u})
						served = true
					}
				}
			}
		}
	}
	if got := l.members[1].request; got < 150*ms || got > 160*ms {
		t.Errorf("lag takes requests of 160 ms to last %v", got)
	}
	if got := unit.rates.perThread.cost(1000); got < 150*ms || got > 170*ms {
		t.Errorf("drr takes requests of 160 ms to cost %v", got)
	}
}
