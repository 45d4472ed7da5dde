package policies

import "math/bits"

// tournament finds the greatest balance although all balances grow, each at its own rate. Entrants play in
// pairs, the winners play each other, and so on. Each game stores how large the pot can become before its
// loser may have overtaken the winner, and is played again only then (a kinetic tournament): so the winner of
// 10 000 is found without evaluating all of them.
type tournament struct {
	most  int64 // no balance grows beyond this, in 1/scale ns
	games []game
	free  []int // seats without an entrant
	in    int   // entrants
}

// few is the number of seats up to which comparing all balances is quicker.
const few = 16

// game is a match of the tournament: game i is between the winners of games 2i and 2i+1; the upper half are
// the seats.
type game struct {
	winner *domainState
	until  uint64 // value of the pot at which it has to be played again
}

// long is the growth of the pot after which a game is played again in any case. Values of the pot wrap, so
// they are compared by their difference.
const long = 1 << 62

// enroll reserves a seat for e; enter occupies it.
func (t *tournament) enroll(e *domainState, pot uint64) {
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

// retire frees e's seat.
func (t *tournament) retire(e *domainState) { t.free = append(t.free, e.seat) }

func (t *tournament) len() int { return t.in }

func (t *tournament) has(e *domainState) bool { return t.games[len(t.games)/2+e.seat].winner == e }

func (t *tournament) enter(e *domainState, pot uint64) {
	t.in++
	t.set(e.seat, e, pot)
}

func (t *tournament) remove(e *domainState, pot uint64) {
	t.in--
	t.set(e.seat, nil, pot)
}

// fix updates e after a change of its balance other than by the pot.
func (t *tournament) fix(e *domainState, pot uint64) { t.set(e.seat, e, pot) }

func (t *tournament) set(seat int, e *domainState, pot uint64) {
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
func (t *tournament) top(pot uint64) *domainState {
	if t.in == 0 {
		return nil
	}
	if seats := t.games[len(t.games)/2:]; len(seats) <= few {
		return t.greatest(seats, pot)
	}
	t.repair(1, pot)
	return t.games[1].winner
}

// greatest returns the winner of a tournament of all seats.
func (t *tournament) greatest(seats []game, pot uint64) *domainState {
	var best *domainState
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

// repair replays the outdated games among those that lead to i.
func (t *tournament) repair(i int, pot uint64) {
	if i >= len(t.games)/2 || int64(t.games[i].until-pot) > 0 {
		return
	}
	t.repair(2*i, pot)
	t.repair(2*i+1, pot)
	t.play(i, pot)
}

// play plays game i. Its result is valid no longer than the results that lead to it.
func (t *tournament) play(i int, pot uint64) {
	a, b := t.games[2*i], t.games[2*i+1]
	holds := uint64(long)
	if 2*i < len(t.games)/2 {
		// A result that is due already stays due.
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

// remaining returns how much the pot may grow until it reaches a value.
func remaining(until, pot uint64) uint64 { return uint64(max(int64(until-pot), 0)) }

// holds returns by how much the pot may grow, at least 1, before l, with balance y, is level with w, with
// balance x: where their lines meet, at the latest when l has the greatest possible balance.
func (t *tournament) holds(w, l *domainState, x, y int64) uint64 {
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
