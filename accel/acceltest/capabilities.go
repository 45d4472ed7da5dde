package acceltest

import "testing"

// testCapabilities checks that the groups of a device and of its contexts belong together, and are constant.
func testCapabilities(t *testing.T, b *bench) {
	b.start(Options{})
	can, ctx := b.dev.Capabilities(), b.ctx.Capabilities()
	if can.FileSharing != nil && can.PeerSharing != nil {
		t.Error("FileSharing and PeerSharing exclude each other")
	}
	if (can.FileSharing != nil) != (ctx.Files != nil) {
		t.Errorf("FileSharing is %v, and Files of a context %v", can.FileSharing, ctx.Files)
	}
	if (can.PeerSharing != nil) != (ctx.Peers != nil) {
		t.Errorf("PeerSharing is %v, and Peers of a context %v", can.PeerSharing, ctx.Peers)
	}
	if can.FileSharing != nil && can.Mapping == nil {
		t.Error("FileSharing has ImportMemory, and there is no Mapping")
	}
	if n := can.StreamWords.Bits; n != 0 && n != 32 && n != 64 {
		t.Errorf("stream words of %d bits", n)
	}
	if m := can.Mapping; m != nil && (m.MapGranule() == 0 || m.MapGranule()&(m.MapGranule()-1) != 0) {
		t.Errorf("the granularity of mappings is %d bytes, want a power of two", m.MapGranule())
	}
	if b.dev.Capabilities() != can || b.ctx.Capabilities() != ctx {
		t.Error("the groups have changed")
	}
}
