package lane

import (
	"bytes"
	"testing"

	"pegasus/accel/ptx"
	"pegasus/guest/bench/kernels"
)

// largest is the largest PTX module of libavfilter, that of scale_cuda.
func largest(tb testing.TB) (text []byte) {
	for _, m := range ffmpegModules(tb) {
		if bytes.Contains(m, []byte("Subsample_Bilinear_nv12_nv12")) {
			return m
		}
	}
	tb.Fatal("libavfilter has no scale_cuda")
	return nil
}

func BenchmarkParse(b *testing.B) {
	text := largest(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ptx.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

// What a first launch takes before a block runs.
func BenchmarkCompile(b *testing.B) {
	for _, name := range kernels.Names() {
		b.Run(name, func(b *testing.B) {
			image := newDevice(b).load(kernels.PTX(name))
			b.ReportAllocs()
			for b.Loop() {
				for _, f := range image.module.Kernels {
					if _, err := compile(image, f); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
