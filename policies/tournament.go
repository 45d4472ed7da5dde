package policies

import "math/bits"

// tournament finds the greatest balance though all of them grow, each at its own
// rate. Entrants play in pairs, the winners play each other, and so on. Each game
// knows how large the pot can become before its loser may have overtaken the
// winner, and is played again only then (a kinetic tournament): so the winner of
// 10 000 is found without a look at all of them.
type tournament struct {
	most  int64 // no balance grows beyond this, in 1/scale ns
	games []game
	free  []int // seats that nobody has
	in    int   // entrants
}

// few is how many seats there may be for it to be quicker to look at all balances.
const few = 16

// game i is between the winners of games 2i and 2i+1; the upper half are the seats.
type game struct {
	winner *partner
	until  uint64 // value of the pot at which it has to be played again
}

// long is how much the pot may grow before a game is played again in any case.
// Values of the pot wrap, so they are compared by their difference.
const long = 1 << 62

// enroll gives e a seat, which it takes with enter.
func (t *tournament) enroll(e *partner, pot uint64) {
	if len(t.free) == 0 {
		t.grow(pot)
	}
	last := len(t.free) - 1
	e.seat = t.free[last]
	t.free = t.free[:last]
}

// grow doubles the number of seats.
func (t *tournament) grow(pot uint64) {
	old := len(t.games) / 2
	size := max(2*old, 1)
	games := make([]game, 2*size)
	copy(games[size:], t.games[old:])
	t.games = games
	for i := size - 1; i > 0; i-- {
		t.play(i, pot)
	}
	for i := size - 1; i >= old; i-- {
		t.free = append(t.free, i)
	}
}

// retire takes e's seat back.
func (t *tournament) retire(e *partner) { t.free = append(t.free, e.seat) }

func (t *tournament) len() int { return t.in }

func (t *tournament) has(e *partner) bool { return t.games[len(t.games)/2+e.seat].winner == e }

func (t *tournament) enter(e *partner, pot uint64) {
	t.in++
	t.set(e.seat, e, pot)
}

func (t *tournament) remove(e *partner, pot uint64) {
	t.in--
	t.set(e.seat, nil, pot)
}

// fix is called when e's balance changed other than by the pot.
func (t *tournament) fix(e *partner, pot uint64) { t.set(e.seat, e, pot) }

func (t *tournament) set(seat int, e *partner, pot uint64) {
	i := len(t.games)/2 + seat
	t.games[i].winner = e
	if len(t.games)/2 <= few {
		return
	}
	for i /= 2; i > 0; i /= 2 {
		t.play(i, pot)
	}
}

// top returns the entrant with the greatest balance, or nil.
func (t *tournament) top(pot uint64) *partner {
	if t.in == 0 {
		return nil
	}
	if seats := t.games[len(t.games)/2:]; len(seats) <= few {
		return t.greatest(seats, pot)
	}
	t.repair(1, pot)
	return t.games[1].winner
}

// greatest is what a tournament of all would say.
func (t *tournament) greatest(seats []game, pot uint64) *partner {
	var best *partner
	var most int64
	for i := range seats {
		e := seats[i].winner
		if e == nil {
			continue
		}
		if x := e.at(pot, t.most); best == nil || x > most || x == most && e.place < best.place {
			best, most = e, x
		}
	}
	return best
}

// repair plays again whatever may have changed among the games that lead to i.
func (t *tournament) repair(i int, pot uint64) {
	if i >= len(t.games)/2 || int64(t.games[i].until-pot) > 0 {
		return
	}
	t.repair(2*i, pot)
	t.repair(2*i+1, pot)
	t.play(i, pot)
}

// play plays game i. Its result holds no longer than those that lead to it.
func (t *tournament) play(i int, pot uint64) {
	a, b := t.games[2*i], t.games[2*i+1]
	holds := uint64(long)
	if 2*i < len(t.games)/2 {
		// A result that is due already stays so.
		holds = min(holds, remaining(a.until, pot), remaining(b.until, pot))
	}
	switch {
	case a.winner == nil:
		a = b
	case b.winner != nil:
		x, y := a.winner.at(pot, t.most), b.winner.at(pot, t.most)
		if y > x || y == x && b.winner.place < a.winner.place {
			a, b, x, y = b, a, y, x
		}
		holds = min(holds, t.holds(a.winner, b.winner, x, y))
	}
	t.games[i] = game{a.winner, pot + holds}
}

// remaining is how much the pot may grow until it reaches a value.
func remaining(until, pot uint64) uint64 { return uint64(max(int64(until-pot), 0)) }

// holds is by how much the pot may grow, at least 1, before l, which has y, is
// level with w, which has x: where their lines meet, but at the latest when l has
// all that one may have.
func (t *tournament) holds(w, l *partner, x, y int64) uint64 {
	if y >= t.most {
		return long
	}
	if l.credits > w.credits && x < t.most {
		meet := max((x-y)/(l.credits-w.credits), 1)
		if hi, lo := bits.Mul64(uint64(meet), uint64(w.credits)); hi == 0 && lo < uint64(t.most-x) {
			return uint64(meet)
		}
	}
	return uint64(max((t.most-y)/l.credits, 1))
}
