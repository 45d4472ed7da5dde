package test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pegasus/cuda"
)

// load loads an image as module id.
func (r *raw) load(id uint64, image []byte) error {
	const at, layout, log = 1 << 20, 100 << 20, 120 << 20
	copy(r.guest.Arena()[at:layout], image)
	_, err := r.call(cuda.OpModuleLoad, 1, &cuda.ModuleLoadArgs{Module: id, ImageOffset: at, ImageLength: uint64(len(image)),
		LayoutOffset: layout, LayoutCapacity: log - layout, LogOffset: log, LogCapacity: 1 << 20})
	return err
}

// inspect only requests an image's layout.
func (r *raw) inspect(image []byte) error {
	const at, layout, log = 1 << 20, 100 << 20, 120 << 20
	copy(r.guest.Arena()[at:layout], image)
	_, err := r.call(cuda.OpModuleInspect, 0, &cuda.ModuleInspectArgs{ImageOffset: at, ImageLength: uint64(len(image)),
		LayoutOffset: layout, LayoutCapacity: log - layout, LogOffset: log, LogCapacity: 1 << 20})
	return err
}

// images returns the available program images.
func images(t *testing.T) (all [][]byte) {
	t.Helper()
	files, err := filepath.Glob("../guest/bench/kernels/zz_*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatal("no PTX", err)
	}
	all = append(all, []byte(kernels))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

// spoiled returns an image that was truncated, mixed up or enlarged.
func spoiled(rng *rand.Rand, all [][]byte) []byte {
	image := bytes.Clone(all[rng.IntN(len(all))])
	switch rng.IntN(6) {
	case 0:
		return image[:rng.IntN(len(image))]
	case 1:
		for range 1 + rng.IntN(20) {
			image[rng.IntN(len(image))] = byte(rng.Uint32())
		}
	case 2: // lines in another order, or twice
		lines := bytes.SplitAfter(image, []byte("\n"))
		for range 1 + rng.IntN(5) {
			lines[rng.IntN(len(lines))] = lines[rng.IntN(len(lines))]
		}
		image = bytes.Join(lines, nil)
	case 3: // numbers that are too large
		digits := []byte("0123456789")
		for range 1 + rng.IntN(5) {
			if i := bytes.IndexAny(image[rng.IntN(len(image)):], "123456789"); i >= 0 {
				image = append(image[:i:i], append(bytes.Repeat(digits[rng.IntN(10):][:1], rng.IntN(30)), image[i:]...)...)
			}
		}
	case 4:
		image = bytes.Repeat(image, 1+rng.IntN(20))
	case 5:
		i := rng.IntN(len(image))
		deep := bytes.Repeat([]byte("{(["[rng.IntN(3):][:1]), rng.IntN(1<<20))
		image = append(image[:i:i], append(deep, image[i:]...)...)
	}
	return image
}

// Spoiled images are rejected or loaded, without other effects. Inspecting one finds no other errors than loading it.
func TestSpoiledImages(t *testing.T) {
	rng := seeded(t)
	h := startHost(t, hostileDomains)
	g := h.greedy()
	all := images(t)
	loaded := 0
	for i := range uint64(400) {
		image := spoiled(rng, all)
		looked, err := g.inspect(image), g.load(1+i, image)
		var r cuda.Result
		if looked != nil && (!errors.As(looked, &r) || err == nil) {
			t.Fatalf("image %d: inspected: %v, loaded: %v", i, looked, err)
		}
		if err != nil && !errors.As(err, &r) {
			t.Fatalf("image %d: %v", i, err)
		}
		if err == nil {
			loaded++
		}
		if err := g.ping(); err != nil {
			t.Fatalf("after image %d: %v", i, err)
		}
	}
	t.Logf("%d of 400 were loaded", loaded)
	g.holdsAtMost(1 << 30)
	h.sound()
}

// A process can't make its worker keep an unlimited number of programs.
func TestManyModules(t *testing.T) {
	h := startHost(t, hostileDomains)
	g := h.greedy()
	image := append([]byte(kernels), bytes.Repeat([]byte(" "), 1<<20-len(kernels))...)
	for id := range uint64(128) {
		if err := g.load(1+id, image); err != nil {
			t.Fatalf("module %d: %v", id, err)
		}
	}
	wantResult(t, g.load(1000, image), cuda.ErrorOutOfMemory)
	if err := g.queue(cuda.OpModuleUnload, 0, &cuda.ModuleUnloadArgs{Module: 1}); err != nil {
		t.Fatal(err)
	}
	if err := g.load(1000, image); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := g.call(cuda.OpContextDestroy, 1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := g.call(cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{}); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(2000) { // and small ones, in great number
		if err := g.load(1+id, []byte(kernels)); err != nil {
			t.Fatalf("small module %d: %v", id, err)
		}
	}
	g.holdsAtMost(512 << 20)
	h.sound()
}
