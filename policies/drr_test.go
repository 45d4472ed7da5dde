package policies

import (
	"math/rand/v2"
	"testing"
	"time"

	"pegasus/vcpu"
)

// TestCostsAreLearned: the costs of a domain's requests per byte and per thread are learned.
func TestCostsAreLearned(t *testing.T) {
	d := newRounds(Defaults(Production))
	c := &tenant{}
	asks := func(r Request) time.Duration {
		r.Seq = 1
		c.heads[Compute] = r
		return d.expected(c)
	}
	for _, s := range []struct {
		request Request
		learn   Request
		took    time.Duration
		want    time.Duration
	}{
		{request: Request{Threads: 1000}, want: d.quantum},
		{request: Request{Threads: 1000, Predicted: ms, Known: true}, want: ms},
		{learn: Request{Threads: 1000}, took: ms, request: Request{Threads: 2000, Predicted: ms, Known: true}, want: 2 * ms},
		{learn: Request{Threads: 1000}, took: 9 * ms, request: Request{Threads: 1000}, want: 2 * ms},
		{learn: Request{Bytes: 1000}, took: 0, request: Request{Bytes: 1 << 60}, want: d.quantum},
		{learn: Request{Bytes: 1 << 30}, took: 512 * ms, request: Request{Bytes: 1 << 20}, want: ms / 2},
		{request: Request{Bytes: 1 << 60, Threads: 1000}, want: time.Hour},
	} {
		c.rates.learn(s.learn, s.took)
		if got := asks(s.request); (got - s.want).Abs() > s.want/1000 {
			t.Errorf("%+v is expected to take %v, not %v", s.request, got, s.want)
		}
	}
}

// A unit saves up for a tick at most, since no lease lasts longer while others wait. As published it saves up for
// the whole request.
func TestSavingsAreBounded(t *testing.T) {
	for _, mode := range []Mode{Production, Paper} {
		o := Defaults(mode)
		c := &tenant{}
		c.heads[Compute] = Request{Seq: 1, Predicted: time.Second, Known: true}
		want := o.Tick
		if mode == Paper {
			want = time.Second
		}
		if got := newRounds(o).estimate(c); got != want {
			t.Errorf("%v mode: a request of 1 s needs %v, not %v", mode, got, want)
		}
	}
}

// A group gets its quantum once a round, even if its members' requests overlap, and keeps the time given for
// a running request.
func TestRoundsOfGroups(t *testing.T) {
	for _, mode := range []Mode{Production, Paper} {
		for _, kernel := range []time.Duration{ms, 5 * ms, 10 * ms} {
			m := newModel(mustNew(t, "drr", mode), 3)
			for id := range ID(2) {
				c := &client{id: id, credits: 256, kernels: []time.Duration{kernel}, think: kernel, burst: 1}
				c.promise.Group = "g"
				m.add(c)
			}
			m.add(&client{id: 2, credits: 512, kernels: []time.Duration{kernel}})
			m.run(Time(time.Second))
			m.measure()
			m.run(Time(11 * time.Second))
			if got := m.shares()[2]; got < 49 || got > 51 {
				t.Errorf("%v mode, requests of %v: the domain beside a group of the same credits gets %.1f %%", mode, kernel, got)
			}
		}
	}
}

// TestRoundsAreSkipped compares the computed visits with visits one after the other, as published.
func TestRoundsAreSkipped(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := NewScheduler(mustNew(t, "drr", Production))
		slow := &slowRounds{}
		for id := range ID(2 + rng.IntN(6)) {
			d := Domain{ID: id, Credits: Credits(1 + rng.IntN(1024))}
			slow.add(d, ms/2*time.Duration(d.Credits)/256, time.Duration(rng.Int64N(int64(20*ms))))
			s.Step(0, &Event{Kind: Attach, Domain: d})
		}
		seq := uint64(0)
		ask := func(q *slowQueue) {
			seq++
			r := Request{Seq: seq, Predicted: q.cost, Known: true}
			s.Step(0, &Event{Kind: Head, Domain: Domain{ID: q.id}, Class: Compute, Request: r})
		}
		for _, q := range slow.queues {
			ask(q)
		}
		s.Ready(0)
		for i := range 300 {
			want := slow.next()
			got := s.accounts[0].policy.(*queue).lease.holder
			if got == nil || got.domain.ID != want.id {
				t.Fatalf("seed %d: request %d is of %v, not of domain %d", seed, i, got, want.id)
			}
			took := want.cost + time.Duration(rng.Int64N(int64(ms)))
			want.left -= took
			s.Step(0, &Event{Kind: Charge, Domain: Domain{ID: want.id}, Class: Compute, Used: vcpu.Usage{Compute: took, Requests: 1}})
			want.cost = time.Duration(rng.Int64N(int64(20 * ms)))
			ask(want)
			s.Ready(0)
		}
	}
}

// slowRounds is deficit round robin step by step, of queues that are never empty.
type slowRounds struct {
	queues []*slowQueue
	at     int
	inTurn bool
}

type slowQueue struct {
	id                  ID
	quantum, left, cost time.Duration
}

func (s *slowRounds) add(d Domain, quantum, cost time.Duration) {
	s.queues = append(s.queues, &slowQueue{id: d.ID, quantum: quantum, cost: cost})
}

func (s *slowRounds) next() *slowQueue {
	for {
		q := s.queues[s.at]
		if !s.inTurn {
			q.left += q.quantum
			s.inTurn = true
		}
		if q.cost < q.left {
			return q
		}
		s.inTurn = false
		s.at = (s.at + 1) % len(s.queues)
	}
}
