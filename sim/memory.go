package sim

import "time"

// A plan's treatment of allocations beyond the accelerator's memory.
const (
	swapNever = ""     // the allocation fails
	swapHost  = "host" // other domains' data is evicted to the host
	swapArea  = "area" // evicted data first rests in an area of the device, a tenth of it
)

// areaPart: 1/areaPart of the device is the area for evicted data.
const areaPart = 10

// memory is the allocations of an accelerator's programs, and their places (Kato et al., "Gdev: First-Class
// GPU Resource Management in the Operating System", USENIX ATC 2012). Every domain has one object. Each of
// its parts is in one place.
type memory struct {
	profile *Profile
	size    Bytes // of the device, without the area
	swap    string
	objects []*object // in order of allocation

	// The area is emptied to the host while the accelerator is otherwise busy, the earliest evicted part
	// first.
	area    Bytes // its size
	leaving []parcel
	emptied Time // time up to which the emptying is computed
	moved   Bytes
}

// object is a domain's memory.
type object struct {
	domain   *domain
	size     Bytes
	resident Bytes
	resting  Bytes // in the area; the rest is on the host
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

// allocate allocates a domain's memory, if there is enough. Its place is irrelevant before its first use.
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

// free frees a domain's memory.
func (m *memory) free(d *domain) {
	for i, o := range m.objects {
		if o.domain == d {
			m.objects = append(m.objects[:i], m.objects[i+1:]...)
			break
		}
	}
	d.object = nil
}

// room returns the part of the device that no other object occupies.
func (m *memory) room(but *object) Bytes {
	room := m.size
	for _, o := range m.objects {
		if o != but {
			room -= o.resident
		}
	}
	return room
}

// bring moves all of an object to the device, and evicts others as needed. It returns how long the engine has
// to wait for that.
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
	// The part in the area is back after a copy within the device, the rest comes from the host.
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

// victim returns the object to evict for o: of the least urgent domains the one used the longest ago. If that
// is not enough, the next follows.
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

// resting returns the occupied part of the area.
func (m *memory) resting() (sum Bytes) {
	for _, p := range m.leaving {
		sum += p.size
	}
	return sum
}

// empty moves to the host the amount for which there was time since the last call.
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
