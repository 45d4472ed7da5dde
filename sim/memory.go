package sim

import "time"

// What a plan does when programs want more memory than the accelerator has.
const (
	swapNever = ""     // the allocation fails
	swapHost  = "host" // what others have goes to the host
	swapArea  = "area" // and on the way there rests in an area of the device, a tenth of it
)

// areaPart is the part of the device, one in so many, that evicted data may rest in.
const areaPart = 10

// memory is what an accelerator's programs have allocated, and where it is (Kato et
// al., "Gdev: First-Class GPU Resource Management in the Operating System", USENIX
// ATC 2012). Every domain has one object. Its parts are in one place each.
type memory struct {
	profile *Profile
	size    Bytes // of the device, without the area
	swap    string
	objects []*object // in order of allocation

	// The area is emptied to the host while the accelerator does other things, what
	// was evicted first in front.
	area    Bytes // its size
	leaving []parcel
	emptied Time // up to which that is computed
	moved   Bytes
}

// object is a domain's memory.
type object struct {
	domain   *domain
	size     Bytes
	resident Bytes
	resting  Bytes // in the area; the rest is with the host
	used     Time
}

// parcel is a part of an object in the area.
type parcel struct {
	object *object
	size   Bytes
}

func newMemory(p *Profile, size Bytes, swap string) *memory {
	m := &memory{profile: p, size: size, swap: swap}
	if swap == swapArea {
		m.area = size / areaPart
		m.size -= m.area
	}
	return m
}

// allocate gives a domain its memory, if there is enough. Where it is doesn't matter
// before it is used.
func (m *memory) allocate(d *domain) bool {
	size := d.spec.Memory
	if size == 0 || m.size == 0 {
		return true
	}
	all := size
	for _, o := range m.objects {
		all += o.size
	}
	if size > m.size || all > m.size && m.swap == swapNever {
		return false
	}
	d.object = &object{domain: d, size: size, resident: min(size, m.room(nil))}
	m.objects = append(m.objects, d.object)
	return true
}

// free gives back what a domain has.
func (m *memory) free(d *domain) {
	for i, o := range m.objects {
		if o.domain == d {
			m.objects = append(m.objects[:i], m.objects[i+1:]...)
			break
		}
	}
	d.object = nil
}

// room is what of the device nobody else has.
func (m *memory) room(but *object) Bytes {
	room := m.size
	for _, o := range m.objects {
		if o != but {
			room -= o.resident
		}
	}
	return room
}

// bring moves all of an object to the device, and what is in its way off it. It
// returns how long the engine has to wait for that.
func (m *memory) bring(now Time, o *object) time.Duration {
	o.used = now
	missing := o.size - o.resident
	if missing == 0 {
		return 0
	}
	m.empty(now)
	var took time.Duration
	for room := m.room(o); room < o.size; room = m.room(o) {
		v := m.victim(o)
		part := min(v.resident, o.size-room)
		v.resident -= part
		m.moved += part
		rests := min(part, m.area-m.resting())
		if rests > 0 {
			v.resting += rests
			m.leaving = append(m.leaving, parcel{v, rests})
			took += m.profile.within(rests)
		}
		if rests < part {
			took += m.profile.copyTime(part - rests)
		}
	}
	// What still rests in the area is back at once, the rest comes from the host.
	if o.resting > 0 {
		took += m.profile.within(o.resting)
		missing -= o.resting
		for i := range m.leaving {
			if m.leaving[i].object == o {
				m.leaving[i].size = 0
			}
		}
		o.resting = 0
	}
	if missing > 0 {
		took += m.profile.copyTime(missing)
	}
	m.moved += o.size - o.resident
	o.resident = o.size
	return took
}

// victim is whose memory is taken for o: of the least urgent domains the one who used
// it the longest ago. Where that isn't enough the next follows.
func (m *memory) victim(o *object) *object {
	var best *object
	for _, v := range m.objects {
		if v == o || v.resident == 0 {
			continue
		}
		if best == nil || v.domain.spec.Priority < best.domain.spec.Priority ||
			v.domain.spec.Priority == best.domain.spec.Priority && v.used < best.used {
			best = v
		}
	}
	return best
}

// resting is what of the area is taken.
func (m *memory) resting() (sum Bytes) {
	for _, p := range m.leaving {
		sum += p.size
	}
	return sum
}

// empty moves to the host what there was time for since the area was last looked at.
func (m *memory) empty(now Time) {
	span := now.Sub(m.emptied)
	m.emptied = now
	for len(m.leaving) > 0 {
		p := &m.leaving[0]
		need := m.profile.copyTime(p.size)
		if p.size > 0 && need > span {
			done := min(Bytes(span)*max(m.profile.Bandwidth/1e6, 1)/1000, p.size)
			p.size -= done
			p.object.resting -= done
			return
		}
		if p.size > 0 {
			span -= need
			p.object.resting -= p.size
		}
		m.leaving = m.leaving[1:]
	}
}
