package test

import (
	"bytes"
	"testing"
)

// The driver chooses the handles of textures and surfaces, and programs receive them.
func TestTexturesOnNVIDIA(t *testing.T) {
	h := startNVIDIA(t, oneDomain)
	textures := program(t, "textures")
	for _, part := range []string{"shapes", "surface-objects", "surface-gone-later", "handles", "refused"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", textures, part)) })
	}
}

// ffmpeg's filters create textures for each frame, and sample the same values as on the software accelerator itself.
func TestFFmpegFiltersOnNVIDIA(t *testing.T) {
	soft, gpu := startHost(t, oneAccelerator), startNVIDIA(t, oneAccelerator)
	c := moving("yuv420p", 160, 90, 6)
	for _, x := range []struct{ graph, format string }{
		{"[0]hwupload_cuda,scale_cuda=w=96:h=54,scale_cuda=w=160:h=90:interp_algo=bicubic", "yuv420p"},
		{"[0]hwupload_cuda,yadif_cuda", "yuv420p"},
		{"[0]hwupload_cuda,chromakey_cuda=color=0x00785a:similarity=0.05:blend=0.2:yuv=1", "yuva420p"},
		{"[up]thumbnail_cuda=n=6[out];[0]hwupload_cuda[up]", "yuv420p"},
	} {
		want, got := filtered(t, soft, x.graph, x.format, c), filtered(t, gpu, x.graph, x.format, c)
		if len(got) == 0 || len(got) != len(want) {
			t.Fatalf("%s: %d frames, want %d", x.graph, len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(encodePlanes(got[i]), encodePlanes(want[i])) {
				t.Errorf("%s: frame %d differs", x.graph, i)
			}
		}
	}
}
