package lane

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"pegasus/accel/ptx"
)

// ffmpegModules extracts the PTX that Debian's libavfilter carries, compressed.
func ffmpegModules(t testing.TB) [][]byte {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/libavfilter.so.[0-9]")
	if len(found) == 0 {
		t.Fatal("no libavfilter: install the Debian package libavfilter8")
	}
	lib, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var modules [][]byte
	for at := 0; ; at++ {
		i := bytes.Index(lib[at:], []byte{0x1f, 0x8b, 8})
		if i < 0 {
			break
		}
		at += i
		z, err := gzip.NewReader(bytes.NewReader(lib[at:]))
		if err != nil {
			continue
		}
		z.Multistream(false)
		if text, err := io.ReadAll(z); err == nil && bytes.Contains(text, []byte(".version")) {
			modules = append(modules, text)
		}
	}
	if len(modules) < 5 {
		t.Fatalf("%s has %d PTX modules, want 5", found[0], len(modules))
	}
	return modules
}

// Every kernel of ffmpeg's CUDA filters compiles.
func TestFFmpegCompiles(t *testing.T) {
	kernels := 0
	for _, text := range ffmpegModules(t) {
		d := newDevice(t)
		im := d.load(text)
		for _, f := range im.layout.Module.Kernels {
			if err := d.kernel(im, f.Name).Compile(); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
			kernels++
		}
	}
	if kernels < 331 {
		t.Fatalf("%d kernels, want 331", kernels)
	}
}

func ffmpegImage(t testing.TB, d *device, kernel string) *Image {
	for _, text := range ffmpegModules(t) {
		if bytes.Contains(text, []byte(".entry "+kernel+"(")) {
			return d.load(text)
		}
	}
	t.Fatalf("no kernel %s", kernel)
	return nil
}

// plane is a picture with one byte per pixel.
type plane struct {
	w, h int
	pix  []byte
}

func picture(w, h int) plane {
	p := plane{w, h, make([]byte, w*h)}
	for y := range h {
		for x := range w {
			p.pix[y*w+x] = byte(127.5 + 60*math.Sin(float64(x)/7) + 60*math.Cos(float64(y)/5+float64(x)/31))
		}
	}
	return p
}

func (p plane) at(x, y int) float64 {
	return float64(p.pix[max(min(y, p.h-1), 0)*p.w+max(min(x, p.w-1), 0)])
}

// scale runs one of vf_scale_cuda's kernels on the luma plane.
func scale(t testing.TB, kernel string, src plane, w, h int, linear, float bool, cores int) plane {
	d := newDevice(t)
	k := d.kernel(ffmpegImage(t, d, kernel), kernel)
	out := d.buffer(w * h)
	tex := &Texture{Data: src.pix, Width: src.w, Height: src.h, PitchBytes: src.w, Format: U8, Channels: 1, Linear: linear, ReadFloat: float,
		Address: [3]AddressMode{Clamp, Clamp, Clamp}}
	l := d.launch(k, xy((w+31)/32, (h+15)/16), xy(32, 16), uint64(1), uint64(2), uint64(3), uint64(4), out, out, out, out, w, h, w, src.w, src.h, float32(999999)) // no parameter given
	l.Cores = cores
	l.Texture = func(handle uint64) *Texture {
		if handle == 1 {
			return tex
		}
		return nil
	}
	if f := k.Run(l); f != nil {
		t.Fatal(f)
	}
	return plane{w, h, out.mem}
}

// psnr returns the similarity of a picture and a function of positions, in dB.
func psnr(p plane, want func(x, y int) float64) float64 {
	var sum float64
	for y := range p.h {
		for x := range p.w {
			e := p.at(x, y) - want(x, y)
			sum += e * e
		}
	}
	return 10 * math.Log10(255*255/(sum/float64(len(p.pix))+1e-9))
}

// interpolate samples a picture with a separable kernel of four taps.
func interpolate(src plane, fx, fy float64, taps func(float64) [4]float64) float64 {
	ix, iy := math.Floor(fx-0.5), math.Floor(fy-0.5)
	wx, wy := taps(fx-0.5-ix), taps(fy-0.5-iy)
	var sum float64
	for j := range 4 {
		for i := range 4 {
			sum += wx[i] * wy[j] * src.at(int(ix)+i-1, int(iy)+j-1)
		}
	}
	return max(min(sum, 255), 0)
}

func linearTaps(t float64) [4]float64 { return [4]float64{0, 1 - t, t, 0} }

func lanczosTaps(t float64) (w [4]float64) {
	sinc := func(x float64) float64 {
		if x == 0 {
			return 1
		}
		return math.Sin(x) / x
	}
	var sum float64
	for i := range w {
		x := math.Pi * (t + 1 - float64(i))
		w[i] = sinc(x) * sinc(x/2)
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// cubicTaps returns the taps of the bicubic scaler with its default parameters.
func cubicTaps(t float64) [4]float64 {
	return [4]float64{0, 2*t*t*t - 3*t*t + 1, 3*t*t - 2*t*t*t, 0}
}

func TestFFmpegScale(t *testing.T) {
	src := picture(96, 80)
	const w, h = 161, 123
	at := func(x, y int) (float64, float64) {
		return (float64(x) + 0.5) * float64(src.w) / w, (float64(y) + 0.5) * float64(src.h) / h
	}
	with := func(taps func(float64) [4]float64) func(x, y int) float64 {
		return func(x, y int) float64 {
			fx, fy := at(x, y)
			return interpolate(src, fx, fy, taps)
		}
	}
	for _, c := range []struct {
		kernel        string
		linear, float bool
		want          func(x, y int) float64
		least         float64
	}{
		{"Subsample_Nearest_yuv420p_yuv420p", false, false, func(x, y int) float64 {
			fx, fy := at(x, y)
			return src.at(int(fx), int(fy))
		}, 100},
		{"Subsample_Bilinear_yuv420p_yuv420p", true, false, with(linearTaps), 45},
		{"Subsample_Bicubic_yuv420p_yuv420p", false, true, with(cubicTaps), 45},
		{"Subsample_Lanczos_yuv420p_yuv420p", false, true, with(lanczosTaps), 45},
	} {
		got := scale(t, c.kernel, src, w, h, c.linear, c.float, 2)
		if q := psnr(got, c.want); q < c.least {
			t.Errorf("%s: %.1f dB, want %v", c.kernel, q, c.least)
		}
	}
}

func BenchmarkFFmpegBicubic(b *testing.B) {
	benchmarkScaler(b, "Subsample_Bicubic_yuv420p_yuv420p", false)
}

func BenchmarkFFmpegBilinear(b *testing.B) {
	benchmarkScaler(b, "Subsample_Bilinear_yuv420p_yuv420p", true)
}

func benchmarkScaler(b *testing.B, name string, linear bool) {
	src := picture(1280, 720)
	d := newDevice(b)
	const w, h = 640, 360
	k := d.kernel(ffmpegImage(b, d, name), name)
	out := d.buffer(w * h)
	l := d.launch(k, xy(w/32, (h+15)/16), xy(32, 16), uint64(1), uint64(2), uint64(3), uint64(4), out, out, out, out, w, h, w, src.w, src.h, float32(0))
	l.Cores = 1
	tex := &Texture{Data: src.pix, Width: src.w, Height: src.h, PitchBytes: src.w, Format: U8, Channels: 1, Linear: linear, ReadFloat: !linear, Address: [3]AddressMode{Clamp, Clamp, Clamp}}
	l.Texture = func(uint64) *Texture { return tex }
	b.SetBytes(w * h)
	for b.Loop() {
		if f := k.Run(l); f != nil {
			b.Fatal(f)
		}
	}
}

// All of the kernels run on small pictures of their formats without a fault.
func TestFFmpegRuns(t *testing.T) {
	d := newDevice(t)
	im := ffmpegImage(t, d, "Subsample_Nearest_yuv420p_yuv420p")
	data := make([]byte, 64*64*8)
	out := d.buffer(1 << 16)
	var k *ptx.Func
	for _, k = range im.layout.Module.Kernels {
		l := d.launch(d.kernel(im, k.Name), x(1), xy(32, 16), uint64(1), uint64(1), uint64(1), uint64(1), out, out, out, out, 16, 12, 512, 32, 32, float32(0.5))
		l.Texture = func(uint64) *Texture {
			return &Texture{Data: data, Width: 32, Height: 32, PitchBytes: 512, Format: U16, Channels: 4, ReadFloat: true, Address: [3]AddressMode{1, 1, 1}}
		}
		if f := d.kernel(im, k.Name).Run(l); f != nil {
			t.Fatal(f)
		}
	}
}
