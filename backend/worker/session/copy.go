package session

import (
	"math/bits"

	"pegasus/accel"
	"pegasus/cuda"
)

// box is the shape of a copy.
type box struct{ width, height, depth uint64 }

// copyEndpoint is a copy endpoint as the guest describes it.
type copyEndpoint struct {
	kind          uint32
	at            uint64
	x, y, z       uint64
	pitch, height uint64
	data          []byte // inline bytes
}

// span returns where in linear memory a box begins, counted from the endpoint's address, and how many bytes from there
// it covers. It sets a pitch or height without a meaning for this box to the smallest valid value. ok is false if the
// numbers overflow or rows overlap.
func (p *copyEndpoint) span(b box) (begin, length uint64, ok bool) {
	m := checked{ok: true}
	slices := b.depth > 1 || p.z != 0
	rows := slices || b.height > 1 || p.y != 0
	wide, high := m.add(p.x, b.width), m.add(p.y, b.height)
	if !rows {
		p.pitch = wide
	}
	if !slices {
		p.height = high
	}
	if wide > p.pitch || high > p.height {
		return 0, 0, false
	}
	slice := m.mul(p.pitch, p.height)
	begin = m.add(m.add(m.mul(p.z, slice), m.mul(p.y, p.pitch)), p.x)
	length = m.add(m.add(m.mul(b.depth-1, slice), m.mul(b.height-1, p.pitch)), b.width)
	return begin, length, m.ok
}

// checked is arithmetic that records an overflow.
type checked struct{ ok bool }

func (m *checked) add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	m.ok = m.ok && carry == 0
	return sum
}

func (m *checked) mul(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	m.ok = m.ok && high == 0
	return low
}

// transfers handles copies and fills. The poller owns it.
type transfers struct {
	base
	streams  *streams
	textures *textures
	copying  accel.Copy // the one that is being submitted
	filling  accel.Fill // the same of fills
}

func (h *transfers) Copy(c cuda.Call, a cuda.CopyArgs) (out cuda.CopyResult, r cuda.Result) {
	b, dst, src := endsOf(a)
	return out, h.copy(c, b, dst, src, a.Release, a.Data)
}

// endsOf returns a copy's shape and its endpoints.
func endsOf(a cuda.CopyArgs) (b box, dst, src copyEndpoint) {
	b = box{a.Width, a.Height, a.Depth}
	dst = copyEndpoint{kind: a.DstKind, at: a.Dst, x: a.DstX, y: a.DstY, z: a.DstZ, pitch: a.DstPitch, height: a.DstHeight}
	src = copyEndpoint{kind: a.SrcKind, at: a.Src, x: a.SrcX, y: a.SrcY, z: a.SrcZ, pitch: a.SrcPitch, height: a.SrcHeight}
	return b, dst, src
}

func (h *transfers) CopyLinear(c cuda.Call, a cuda.CopyLinearArgs) (out cuda.CopyLinearResult, r cuda.Result) {
	dst, src := copyEndpoint{kind: uint32(a.DstKind), at: a.Dst}, copyEndpoint{kind: uint32(a.SrcKind), at: a.Src}
	if dst.kind == cuda.EndArray || src.kind == cuda.EndArray {
		h.host.Release(a.Release)
		return out, cuda.ErrorInvalidValue
	}
	return out, h.copy(c, box{a.Length, 1, 1}, dst, src, a.Release, a.Data)
}

// copy returns Deferred if it submitted a copy with a reply. In every case the release word is set when the source is
// needed no more.
func (h *transfers) copy(c cuda.Call, b box, dst, src copyEndpoint, release uint32, data []byte) cuda.Result {
	g, st, r := h.streams.forWork(c)
	if r != cuda.Success || b.width == 0 || b.height == 0 || b.depth == 0 {
		h.host.Release(release)
		return r
	}
	sub := h.work.newSubmission(g, c.Stream)
	t := &sub.transfer
	t.call, t.dst, t.src, t.release = c, dst.kind, src.kind, release
	if r = h.prepareCopy(g, t, b, dst, src, data); r != cuda.Success {
		sub.recycle()
		h.host.Release(release)
		return r
	}
	h.copying.Spent = sub.spent
	r = h.work.submitGated(sub, st, &h.copying, t.class(), h.work.costs.predictCopy(t.dst, t.src, t.bytes))
	if r != cuda.Success {
		h.host.Release(release)
		return r
	}
	return deferredIf(c.Reply)
}

// deferredIf returns the result of a submitted call.
func deferredIf(reply bool) cuda.Result {
	if reply {
		return cuda.Deferred
	}
	return cuda.Success
}

// prepareCopy checks a copy and describes it to the device in h.copying.
func (h *transfers) prepareCopy(g *guestContext, t *transfer, b box, dst, src copyEndpoint, data []byte) (r cuda.Result) {
	m := checked{ok: true}
	t.bytes = m.mul(m.mul(b.width, b.height), b.depth)
	if !m.ok {
		return cuda.ErrorInvalidValue
	}
	if dst.kind == cuda.EndInline {
		if src.kind == cuda.EndInline || !t.call.Reply || t.bytes > cuda.MaxInlineReply {
			return cuda.ErrorInvalidValue
		}
		clear(t.reply[:]) // rows with gaps leave some bytes unwritten
		dst.data, t.into = t.reply[:], t.reply[:t.bytes]
	}
	if src.kind == cuda.EndInline {
		t.inline = append(t.inline, data...)
		h.work.load.kept.Add(int64(len(t.inline))) // until recycle
		src.data = t.inline
	} else if len(data) != 0 {
		return cuda.ErrorInvalidValue
	}
	w := &h.copying
	*w = accel.Copy{Width: b.width, Height: b.height, Depth: b.depth}
	if w.Dst, r = h.textures.resolve(dst, b, g); r == cuda.Success {
		w.Src, r = h.textures.resolve(src, b, g)
	}
	return r
}

func (h *transfers) Fill(c cuda.Call, a cuda.FillArgs) cuda.Result {
	g, st, r := h.streams.forWork(c)
	if r != cuda.Success {
		return r
	}
	w, bytes, r := fillOf(a)
	if r != cuda.Success || bytes == 0 {
		return r
	}
	sub := h.work.newSubmission(g, c.Stream)
	t := &sub.transfer
	t.call, t.dst, t.src, t.bytes = c, cuda.EndDevice, cuda.EndDevice, bytes
	h.filling = w
	h.filling.Spent = sub.spent
	if r = h.work.submitGated(sub, st, &h.filling, t.class(), h.work.costs.predictCopy(t.dst, t.src, t.bytes)); r != cuda.Success {
		return r
	}
	return deferredIf(c.Reply)
}

// fillOf returns the guest's fill after a check, and its number of bytes.
func fillOf(a cuda.FillArgs) (w accel.Fill, bytes uint64, r cuda.Result) {
	if a.ElementSize != 1 && a.ElementSize != 2 && a.ElementSize != 4 {
		return w, 0, cuda.ErrorInvalidValue
	}
	if a.Width == 0 || a.Height == 0 {
		return w, 0, cuda.Success
	}
	m := checked{ok: true}
	p := copyEndpoint{at: a.Dst, pitch: a.Pitch}
	b := box{m.mul(a.Width, uint64(a.ElementSize)), a.Height, 1}
	_, length, ok := p.span(b)
	m.add(a.Dst, length)
	if !ok || !m.ok {
		return w, 0, cuda.ErrorInvalidValue
	}
	w = accel.Fill{Address: a.Dst, Width: a.Width, Height: a.Height, Pitch: p.pitch, Value: a.Value, ElementSize: a.ElementSize}
	return w, b.width * b.height, cuda.Success
}

// resolve returns the device's endpoint for a copy endpoint, or the error of an invalid one.
func (h *textures) resolve(p copyEndpoint, b box, g *guestContext) (accel.End, cuda.Result) {
	if p.kind == cuda.EndArray {
		arr, r := h.arrays.Get(p.at)
		if r == cuda.Success && arr.g != g {
			r = cuda.ErrorInvalidHandle
		}
		if r != cuda.Success {
			return accel.End{}, r
		}
		return accel.End{Array: arr.a, X: p.x, Y: p.y, Z: p.z}, cuda.Success
	}
	begin, length, ok := p.span(b)
	m := checked{ok: ok}
	at := m.add(p.at, begin)
	m.add(at, length)
	if !m.ok {
		return accel.End{}, cuda.ErrorInvalidValue
	}
	e := accel.End{Pitch: p.pitch, Height: p.height}
	switch p.kind {
	case cuda.EndDevice:
		e.Address = at
	case cuda.EndArena:
		if e.Host, ok = h.host.Arena(at, length); !ok {
			return accel.End{}, cuda.ErrorInvalidValue
		}
	case cuda.EndInline:
		if p.at != 0 || m.add(begin, length) > uint64(len(p.data)) {
			return accel.End{}, cuda.ErrorInvalidValue
		}
		e.Host = p.data[begin : begin+length : begin+length]
	default:
		return accel.End{}, cuda.ErrorInvalidValue
	}
	return e, cuda.Success
}
