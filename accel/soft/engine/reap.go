package engine

// Reap frees all that a dead process held: tokens, places in queues, memory,
// spinning seats. The daemon calls it when it has seen the process end.
func (p *Page) Reap(pid int) {
	for i := range p.slots() {
		if o := p.l.workers[i].owner.Load(); ownerPid(o) == pid && pid != 0 {
			p.release(i, o)
		}
	}
}

// Sweep reaps every worker that is found dead.
func (p *Page) Sweep() {
	for i := range p.slots() {
		if o := p.l.workers[i].owner.Load(); ownerPid(o) != 0 && !p.alive(i) {
			p.release(i, o)
		}
	}
}

// release frees slot i if it still belongs to owner.
func (p *Page) release(i int, owner uint64) {
	for k := range p.l.tokens {
		p.l.tokens[k].dropAll(i, ownerEpoch(owner))
	}
	for k := range p.l.seat {
		p.l.seat[k].CompareAndSwap(owner, 0)
	}
	p.l.workers[i].owner.CompareAndSwap(owner, ownerWord(ownerEpoch(owner)+1, 0))
}

// dropAll abandons every ticket of a worker, and ends the one that is being served.
func (t *tokenWords) dropAll(worker int, epoch uint16) {
	n, tail := t.serving.Load(), t.tail.Load()
	if !t.sane() || tail-n > slotsPerToken {
		return
	}
	for tail++; n != tail; n++ { // one further: claimed, but the tail was not moved yet
		s := t.slot(n)
		w := claimWord(n, worker, epoch)
		if s.word.Load() != w {
			continue
		}
		gone := freeWord(n) | abandoned
		s.word.CompareAndSwap(w, gone)
		t.tail.CompareAndSwap(n, n+1)
		if t.serving.Load() == n {
			t.end(n, gone, Now())
		}
	}
}

// recover hands a token on whose holder died, gave up its ticket, or died while handing it on.
func (p *Page) recover(t *tokenWords, now int64) {
	for range slotsPerToken {
		n := t.serving.Load()
		if n == t.tail.Load() {
			return
		}
		w := t.slot(n).word.Load()
		switch {
		case t.serving.Load() != n:
		case w == freeWord(n+slotsPerToken):
			t.advance(n, now) // ended, but not handed on
		case w.claims(n) && !w.abandoned() && p.holderLives(w):
			return
		default:
			t.end(n, w, now)
		}
	}
}

// holderLives says whether the process that claimed a ticket is alive.
func (p *Page) holderLives(w ticketWord) bool {
	i, epoch := w.worker()
	return p.pidOf(i, epoch) != 0 && p.alive(i)
}
