package memory

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"pegasus/xenstore/wire"
)

// request is the handler of a packet type. do returns the answer, or a syscall.Errno.
type request struct {
	do         func(v view, body []byte) ([]byte, error)
	privileged bool // domain 0 only
	anyTx      bool // the transaction is ignored
}

var requests = map[wire.Type]request{
	wire.Control:            {do: control, privileged: true},
	wire.Directory:          {do: directory},
	wire.DirectoryPart:      {do: directoryPart},
	wire.Read:               {do: read},
	wire.Write:              {do: write},
	wire.Mkdir:              {do: mkdir},
	wire.Rm:                 {do: rm},
	wire.GetPerms:           {do: getPerms},
	wire.SetPerms:           {do: setPerms},
	wire.Watch:              {do: doWatch, anyTx: true},
	wire.Unwatch:            {do: unwatch, anyTx: true},
	wire.ResetWatches:       {do: resetWatches},
	wire.TransactionStart:   {do: transactionStart},
	wire.Introduce:          {do: introduce, privileged: true},
	wire.Release:            {do: release, privileged: true},
	wire.Resume:             {do: resume, privileged: true},
	wire.SetTarget:          {do: setTarget, privileged: true},
	wire.IsDomainIntroduced: {do: isDomainIntroduced, privileged: true},
	wire.GetDomainPath:      {do: getDomainPath},
}

var ok = wire.Join("OK")

// handle carries out a request, and sends the one answer, before all events.
func (p *peer) handle(q wire.Packet) {
	first := len(p.out)
	body, err := p.serve(q)
	answer := wire.Packet{Type: q.Type, ID: q.ID, Tx: q.Tx, Body: body}
	if len(body) > wire.BodyMax {
		err = syscall.E2BIG
	}
	if err != nil {
		answer.Type, answer.Body = wire.Error, wire.Join(wire.ErrnoName(err.(syscall.Errno)))
	}
	if q.Type == wire.Watch && err == nil { // the watch's first event follows the answer
		p.out = slices.Insert(p.out, first, answer)
		p.room.Broadcast()
		return
	}
	p.send(answer)
}

func (p *peer) serve(q wire.Packet) ([]byte, error) {
	r, known := requests[q.Type]
	if !known && q.Type != wire.TransactionEnd {
		return nil, syscall.ENOSYS
	}
	if r.privileged && !p.privileged() {
		return nil, syscall.EACCES
	}
	v := view{s: p.server, p: p}
	if q.Tx != 0 && !r.anyTx {
		if v.tx = p.txs[q.Tx]; v.tx == nil {
			return nil, syscall.ENOENT
		}
	}
	if q.Type == wire.TransactionEnd {
		return transactionEnd(v, q)
	}
	return r.do(v, q.Body)
}

// one returns a body that is one string.
func one(body []byte) (string, error) {
	if i := bytes.IndexByte(body, 0); i < 0 || i != len(body)-1 {
		return "", syscall.EINVAL
	}
	return string(body[:len(body)-1]), nil
}

// several returns the strings of a body that end in a NUL. Bytes after the last NUL are ignored.
func several(body []byte) []string {
	return wire.Split(body[:bytes.LastIndexByte(body, 0)+1])
}

// number parses the leading digits, as Xen does.
func number(s string) (n int) {
	s, negative := strings.CutPrefix(strings.TrimLeft(s, " \t\n\v\f\r"), "-")
	if !negative {
		s = strings.TrimPrefix(s, "+")
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' || n > 1<<30 {
			break
		}
		n = 10*n + int(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

// one returns the node that a body of one string names.
func (v view) one(body []byte, need wire.Access) (string, *node, error) {
	path, err := one(body)
	if err != nil {
		return "", nil, err
	}
	path = v.p.path(path)
	n, err := v.get(path, need, false)
	return path, n, err
}

func directory(v view, body []byte) ([]byte, error) {
	_, n, err := v.one(body, wire.CanRead)
	if err != nil {
		return nil, err
	}
	return wire.Join(n.children...), nil
}

func directoryPart(v view, body []byte) ([]byte, error) {
	if bytes.Count(body, []byte{0}) != 2 {
		return nil, syscall.EINVAL
	}
	args := several(body)
	n, err := v.get(v.p.path(args[0]), wire.CanRead, false)
	if err != nil {
		return nil, err
	}
	answer := wire.Join(strconv.FormatUint(n.generation, 10))
	list := wire.Join(n.children...)
	offset := number(args[1])
	if offset < 0 || offset >= len(list) {
		return append(answer, 0), nil
	}
	room := wire.BodyMax - len(answer) - 1
	part := list[offset:]
	if len(part) > room {
		part = part[:bytes.LastIndexByte(part[:room], 0)+1]
		return append(answer, part...), nil
	}
	return append(append(answer, part...), 0), nil
}

func read(v view, body []byte) ([]byte, error) {
	_, n, err := v.one(body, wire.CanRead)
	if err != nil {
		return nil, err
	}
	return n.value, nil
}

func write(v view, body []byte) ([]byte, error) {
	name, value, found := bytes.Cut(body, []byte{0})
	if !found {
		return nil, syscall.EINVAL
	}
	path := v.p.path(string(name))
	n, err := v.get(path, wire.CanWrite, false)
	switch {
	case err == syscall.ENOENT:
		err = v.create(path, value)
	case err == nil:
		err = v.write(path, n.withValue(value))
	}
	if err != nil {
		return nil, err
	}
	v.fire(path, nil, false, nil)
	return ok, nil
}

func mkdir(v view, body []byte) ([]byte, error) {
	path, _, err := v.one(body, wire.CanWrite)
	if err == syscall.ENOENT {
		if err = v.create(path, nil); err == nil {
			v.fire(path, nil, false, nil)
		}
	}
	return ok, err
}

func rm(v view, body []byte) ([]byte, error) {
	path, _, err := v.one(body, wire.CanWrite)
	switch {
	case err == syscall.ENOENT:
		parent, bad := v.read(wire.Parent(path))
		if parent != nil || bad != nil {
			err = bad
		}
	case err == nil && path == "/":
		err = syscall.EINVAL
	case err == nil:
		err = v.removeTree(path)
	}
	return ok, err
}

func getPerms(v view, body []byte) ([]byte, error) {
	_, n, err := v.one(body, wire.CanRead)
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, p := range n.perms {
		parts = append(parts, p.String())
	}
	return wire.Join(parts...), nil
}

func setPerms(v view, body []byte) ([]byte, error) {
	parts := several(body)
	if len(parts) < 2 {
		return nil, syscall.EINVAL
	}
	if !v.p.privileged() && len(parts)-1 > v.s.quota.Perms {
		return nil, syscall.ENOSPC
	}
	given, err := wire.ParsePerms(parts[1:])
	if err != nil {
		return nil, syscall.EINVAL
	}
	perms := make([]perm, len(given))
	for i, p := range given {
		perms[i] = perm{p, v.s.know(p.Dom) == nil}
	}
	if perms[0].dead {
		return nil, syscall.ENOENT
	}
	if strings.HasPrefix(parts[0], "@") {
		return v.setSpecial(parts[0], perms)
	}
	path := v.p.path(parts[0])
	n, err := v.get(path, wire.CanWrite, true)
	if err != nil {
		return nil, err
	}
	if !v.p.privileged() && perms[0].Dom != n.owner() {
		return nil, syscall.EPERM
	}
	changed := n.withPerms(perms)
	changed.generation = v.s.generation + 1 // permissions of existing domains are valid by this
	if err := v.write(path, changed); err != nil {
		return nil, err
	}
	v.fire(path, nil, false, v.s.buried(n).perms)
	return ok, nil
}

// setSpecial sets which domains may watch domains come and go.
func (v view) setSpecial(name string, perms []perm) ([]byte, error) {
	old, known := v.s.special[name]
	if !known {
		return nil, syscall.EINVAL
	}
	if _, owner := v.s.access(v.p, old, v.s.generation); !owner {
		return nil, syscall.EACCES
	}
	v.s.special[name] = perms
	return ok, nil
}

func doWatch(v view, body []byte) ([]byte, error) {
	args := several(body)
	if len(args) != 2 {
		return nil, syscall.EINVAL
	}
	w, err := v.p.watch(args[0], args[1])
	if err != nil {
		return nil, err
	}
	v.p.enqueueEvent(w.shown(w.path), w.token)
	return ok, nil
}

func unwatch(v view, body []byte) ([]byte, error) {
	args := several(body)
	if len(args) != 2 {
		return nil, syscall.EINVAL
	}
	return ok, v.p.unwatch(args[0], args[1])
}

func resetWatches(v view, _ []byte) ([]byte, error) {
	v.p.reset()
	return ok, nil
}

func transactionStart(v view, _ []byte) ([]byte, error) {
	if v.tx != nil {
		return nil, syscall.EBUSY
	}
	id, err := v.p.begin()
	return wire.Join(strconv.FormatUint(uint64(id), 10)), err
}

func transactionEnd(v view, q wire.Packet) ([]byte, error) {
	arg, err := one(q.Body)
	switch {
	case err != nil || arg != "T" && arg != "F":
		return nil, syscall.EINVAL
	case v.tx == nil:
		return nil, syscall.ENOENT
	}
	delete(v.p.txs, q.Tx)
	if arg == "T" {
		err = v.tx.commit(view{s: v.s, p: v.p})
	}
	return ok, err
}

func introduce(v view, body []byte) ([]byte, error) {
	args := several(body)
	if len(args) < 3 || uint32(number(args[2])) == 0 {
		return nil, syscall.EINVAL
	}
	dom := wire.DomID(number(args[0]))
	if err := v.s.introduce(dom); err != nil {
		return nil, err
	}
	for _, p := range v.s.peers {
		if p.dom == dom && dom != 0 {
			p.reset()
		}
	}
	return ok, nil
}

// domain returns the domain that a body names, which isn't 0.
func (v view) domain(body []byte) (wire.DomID, *domain, error) {
	arg, err := one(body)
	dom := wire.DomID(number(arg))
	if err != nil || dom == 0 {
		return 0, nil, syscall.EINVAL
	}
	d, err := v.s.introduced(dom)
	return dom, d, err
}

func release(v view, body []byte) ([]byte, error) {
	dom, _, err := v.domain(body)
	if err == nil {
		v.s.release(dom)
	}
	return ok, err
}

func resume(v view, body []byte) ([]byte, error) {
	_, d, err := v.domain(body)
	if err == nil {
		d.down = false
	}
	return ok, err
}

func setTarget(v view, body []byte) ([]byte, error) {
	args := several(body)
	if len(args) < 2 {
		return nil, syscall.EINVAL
	}
	d, err := v.s.introduced(wire.DomID(number(args[0])))
	if err != nil {
		return nil, err
	}
	target := wire.DomID(number(args[1]))
	if _, err := v.s.introduced(target); err != nil {
		return nil, err
	}
	d.target = &target
	return ok, nil
}

func isDomainIntroduced(v view, body []byte) ([]byte, error) {
	arg, err := one(body)
	if err != nil {
		return nil, err
	}
	dom := wire.DomID(number(arg))
	if _, err := v.s.introduced(dom); err != nil && dom != wire.Self {
		return wire.Join("F"), nil
	}
	return wire.Join("T"), nil
}

func getDomainPath(_ view, body []byte) ([]byte, error) {
	arg, err := one(body)
	return wire.Join("/local/domain/" + strconv.FormatUint(uint64(uint32(number(arg))), 10)), err
}

func control(_ view, body []byte) ([]byte, error) {
	args := several(body)
	if len(args) == 0 {
		return nil, syscall.EINVAL
	}
	switch args[0] {
	case "help":
		return []byte("Supported commands:\n\tcheck\n\thelp\n\tprint <string>"), nil
	case "check", "print":
		return ok, nil
	}
	return nil, syscall.EINVAL
}
