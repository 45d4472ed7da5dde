package engine

// Reap frees all that a dead process held: tokens, places in queues, memory,
// spinning seats. The daemon calls it when it has seen the process end. The lock of a slot is asked, too: any
// worker could have written the process's number into another one's slot.
func (p *Page) Reap(pid int) {
	for i := range p.slots() {
		if o := p.l.workers[i].owner.Load(); ownerPid(o) == pid && pid != 0 && !p.alive(i) {
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

// release frees slot i if it still belongs to owner. The time for which a dead owner held engines is charged up to now.
func (p *Page) release(i int, owner uint64) {
	for k := range NumTokens {
		p.dropAll(k, i, ownerEpoch(owner))
	}
	for k := range p.l.seat {
		p.l.seat[k].CompareAndSwap(owner, 0)
	}
	s := &p.l.workers[i]
	for k := range s.executes {
		if since := s.executes[k].Load(); since != 0 && s.owner.Load() == owner && s.executes[k].CompareAndSwap(since, 0) {
			p.account(s.account.Load()).added[k].Add(max(Now()-since, 0))
		}
	}
	s.owner.CompareAndSwap(owner, ownerWord(ownerEpoch(owner)+1, 0))
}

// dropAll abandons every ticket of a worker, and ends the one that is being served.
func (p *Page) dropAll(k Token, worker int, epoch uint16) {
	t := &p.l.tokens[k]
	n, tail := t.serving.Load(), t.tail.Load()
	if !t.sane() || tail-n > slotsPerToken {
		return
	}
	for tail++; n != tail; n++ { // one further: claimed, but the tail was not moved yet
		s := t.slot(n)
		w := claimWord(n, worker, epoch)
		if s.word.Load()&^abandoned != w {
			continue
		}
		s.word.CompareAndSwap(w, w|abandoned)
		t.tail.CompareAndSwap(n, n+1)
		if t.serving.Load() == n {
			p.end(k, n, Now())
		}
	}
}

// recover hands a token on whose holder died, gave up its ticket, or died while handing it on.
func (p *Page) recover(k Token, now int64) {
	t := &p.l.tokens[k]
	for range slotsPerToken {
		n := t.serving.Load()
		if n == t.tail.Load() {
			return
		}
		w := t.slot(n).word.Load()
		switch {
		case t.serving.Load() != n:
		case w == freeWord(n+slotsPerToken):
			if ended, skip := p.advance(k, n); skip { // ended, but not handed on
				p.end(k, n+1, ended)
			}
		case w.claims(n) && !w.abandoned() && p.holderLives(w):
			return
		default:
			p.end(k, n, now)
		}
	}
}

// holderLives says whether the process that claimed a ticket is alive.
func (p *Page) holderLives(w ticketWord) bool {
	i, epoch := w.worker()
	return p.pidOf(i, epoch) != 0 && p.alive(i)
}
