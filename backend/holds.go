package backend

import "pegasus/backend/control"

// errEnding is when nothing is begun any more.
var errEnding = control.Errorf(control.CodeConflict, "the daemon is ending; try again")

// maxHolds bounds the programs that hold domains at once.
const maxHolds = 4096

// hold keeps a domain, and a private daemon, for as long as the caller's
// process lives, whatever it executes meanwhile.
func (d *Daemon) hold(p control.Peer, q control.HoldParams) (control.HoldResult, error) {
	pidfd, err := openProcess(p.PID)
	if err != nil {
		return control.HoldResult{}, control.Errorf(control.CodeInvalid, "hold: %v", err)
	}
	result, err := d.holdDomain(q)
	if err != nil {
		pidfd.Close()
		return control.HoldResult{}, err
	}
	d.tasks.Go(func() {
		defer pidfd.Close()
		awaitExit(d.ctx, pidfd)
		d.unhold()
	})
	return result, nil
}

func (d *Daemon) holdDomain(q control.HoldParams) (none control.HoldResult, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ending:
		return none, errEnding
	case d.holders >= maxHolds:
		return none, control.Errorf(control.CodeConflict, "%d programs run already, the most there can be", maxHolds)
	}
	dom, err := d.domain(q.Domain)
	if err != nil {
		return none, err
	}
	if q.Credits != 0 {
		if err := d.setLocked(dom, map[string]string{"credits": itoa(q.Credits)}); err != nil {
			return none, err
		}
	}
	d.holders++
	return control.HoldResult{Domain: dom.name, Socket: dom.socket()}, nil
}

func (d *Daemon) unhold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holders--
	d.restIfIdle()
}

// restIfIdle lets a private daemon that nobody uses end after a while. d.mu is held.
func (d *Daemon) restIfIdle() {
	if !d.opt.Private {
		return
	}
	if !d.idle() {
		d.rest.Stop()
		return
	}
	d.rest.Reset(d.opt.Linger)
}

func (d *Daemon) idle() bool { return d.holders == 0 && len(d.guests) == 0 && d.arriving == 0 }

// retire ends a private daemon, unless somebody came meanwhile.
func (d *Daemon) retire() {
	d.mu.Lock()
	idle := d.idle()
	if idle {
		d.ending = true
	}
	d.mu.Unlock()
	if idle {
		d.log.Info("nobody is left: ending")
		d.end()
	}
}
