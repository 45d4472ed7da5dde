package test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// plane is one plane of a picture: channels interleaved samples of 8 bits.
type plane struct {
	w, h, channels int
	pix            []byte
}

func newPlane(w, h, channels int) plane {
	return plane{w, h, channels, make([]byte, w*h*channels)}
}

// at returns a sample; outside of the plane the nearest one inside.
func (p plane) at(x, y, c int) float64 {
	x, y = min(max(x, 0), p.w-1), min(max(y, 0), p.h-1)
	return float64(p.pix[(y*p.w+x)*p.channels+c])
}

// linear returns the interpolated value between samples, which have their centres at .5.
func (p plane) linear(x, y float64, c int) float64 {
	x, y = x-.5, y-.5
	x0, y0 := math.Floor(x), math.Floor(y)
	fx, fy := x-x0, y-y0
	i, j := int(x0), int(y0)
	return (p.at(i, j, c)*(1-fx)+p.at(i+1, j, c)*fx)*(1-fy) + (p.at(i, j+1, c)*(1-fx)+p.at(i+1, j+1, c)*fx)*fy
}

// kernel4 returns the weights of four neighbouring samples at fraction f between the middle two.
type kernel4 func(f float64) [4]float64

// keys returns the weights of Keys' cubic convolution with a = 0.
func keys(f float64) [4]float64 {
	near := func(d float64) float64 { return 2*d*d*d - 3*d*d + 1 }
	return [4]float64{0, near(f), near(1 - f), 0}
}

// lanczos2 returns the normalised weights of the Lanczos kernel with two lobes.
func lanczos2(f float64) (w [4]float64) {
	sinc := func(x float64) float64 {
		if x == 0 {
			return 1
		}
		return math.Sin(math.Pi*x) / (math.Pi * x)
	}
	sum := 0.0
	for i := range w {
		d := f + 1 - float64(i)
		w[i] = sinc(d) * sinc(d/2)
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

// resample scales a plane by the textbook form of an algorithm: the test's independent implementation of the filter, in
// double precision.
func resample(p plane, w, h int, algorithm string) plane {
	out := newPlane(w, h, p.channels)
	sx, sy := float64(p.w)/float64(w), float64(p.h)/float64(h)
	for y := range h {
		for x := range w {
			cx, cy := (float64(x)+.5)*sx, (float64(y)+.5)*sy
			for c := range p.channels {
				out.pix[(y*w+x)*p.channels+c] = byte(math.Round(min(max(sample(p, cx, cy, sx, sy, c, algorithm), 0), 255)))
			}
		}
	}
	return out
}

func sample(p plane, x, y, sx, sy float64, c int, algorithm string) float64 {
	switch algorithm {
	case "nearest":
		return p.at(int(math.Floor(x)), int(math.Floor(y)), c)
	case "bilinear": // a three-tap box as the mean of two linear reads an axis
		dx, dy := spread(sx), spread(sy)
		return (p.linear(x-dx, y-dy, c) + p.linear(x+dx, y-dy, c) + p.linear(x-dx, y+dy, c) + p.linear(x+dx, y+dy, c)) / 4
	case "bicubic":
		return p.convolve(x, y, c, keys)
	case "lanczos":
		return p.convolve(x, y, c, lanczos2)
	}
	panic(algorithm)
}

func spread(scale float64) float64 {
	w := min(max((scale-1)/2, 0), 1)
	return w / (w + .5)
}

func (p plane) convolve(x, y float64, c int, k kernel4) (sum float64) {
	x, y = x-.5, y-.5
	x0, y0 := math.Floor(x), math.Floor(y)
	wx, wy := k(x-x0), k(y-y0)
	for j := range 4 {
		for i := range 4 {
			sum += wx[i] * wy[j] * p.at(int(x0)+i-1, int(y0)+j-1, c)
		}
	}
	return sum
}

// planes returns the planes of a picture of a format.
func planes(format string, w, h int) []plane {
	cw, ch := (w+1)/2, (h+1)/2
	switch format {
	case "yuv420p":
		return []plane{newPlane(w, h, 1), newPlane(cw, ch, 1), newPlane(cw, ch, 1)}
	case "nv12":
		return []plane{newPlane(w, h, 1), newPlane(cw, ch, 2)}
	case "yuva420p":
		return []plane{newPlane(w, h, 1), newPlane(cw, ch, 1), newPlane(cw, ch, 1), newPlane(w, h, 1)}
	case "yuv444p":
		return []plane{newPlane(w, h, 1), newPlane(w, h, 1), newPlane(w, h, 1)}
	}
	panic(format)
}

// picture draws edges, ramps and waves; no two planes or frames are alike.
func picture(format string, w, h, frame int) []plane {
	ps := planes(format, w, h)
	for i, p := range ps {
		for y := range p.h {
			for x := range p.w {
				for c := range p.channels {
					u, v := float64(x)/float64(p.w), float64(y)/float64(p.h)
					s := 110 + 60*math.Sin(9*u+float64(i+c+frame)) + 50*math.Cos(7*v*float64(1+c))
					if (int(u*6)+int(v*5)+frame)%3 == 0 {
						s += 30
					}
					p.pix[(y*p.w+x)*p.channels+c] = byte(min(max(s, 0), 255))
				}
			}
		}
	}
	return ps
}

func encodePlanes(ps []plane) (b []byte) {
	for _, p := range ps {
		b = append(b, p.pix...)
	}
	return b
}

func psnr(a, b []byte) float64 {
	var sum float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	if sum == 0 {
		return math.Inf(1)
	}
	return 10 * math.Log10(255*255*float64(len(a))/sum)
}

// scaling is one run of ffmpeg's scale_cuda over a few frames.
type scaling struct {
	format, algorithm string
	w, h, outW, outH  int
}

const scaledFrames = 2

// command writes the clip and returns the program that scales it to out.
func (s scaling) command(t *testing.T, h *host, domain string) (cmd *exec.Cmd, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.raw"), filepath.Join(dir, "out.raw")
	var clip []byte
	for f := range scaledFrames {
		clip = append(clip, encodePlanes(picture(s.format, s.w, s.h, f))...)
	}
	if err := os.WriteFile(in, clip, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Fatal("ffmpeg is not installed; `make deps` installs it")
	}
	cmd = h.guest(domain, "ffmpeg", "-v", "error", "-nostdin", "-y", "-init_hw_device", "cuda=gpu", "-filter_hw_device", "gpu",
		"-f", "rawvideo", "-pix_fmt", s.format, "-s", fmt.Sprintf("%dx%d", s.w, s.h), "-i", in,
		"-vf", fmt.Sprintf("hwupload_cuda,scale_cuda=%d:%d:interp_algo=%s,hwdownload,format=%s", s.outW, s.outH, s.algorithm, s.format),
		"-f", "rawvideo", out)
	return cmd, out
}

// check compares the output with the reference.
func (s scaling) check(t *testing.T, out string) {
	t.Helper()
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for f := range scaledFrames {
		from := picture(s.format, s.w, s.h, f)
		to := planes(s.format, s.outW, s.outH)
		for i, p := range from {
			want := resample(p, to[i].w, to[i].h, s.algorithm)
			if len(got) < len(want.pix) {
				t.Fatalf("frame %d, plane %d is missing", f, i)
			}
			db := psnr(got[:len(want.pix)], want.pix)
			t.Logf("frame %d plane %d: %.1f dB", f, i, db)
			if db < 40 {
				t.Errorf("frame %d, plane %d: %.1f dB against the reference, want at least 40", f, i, db)
			}
			got = got[len(want.pix):]
		}
	}
	if len(got) != 0 {
		t.Errorf("%d bytes too many", len(got))
	}
}

const oneAccelerator = "[[accelerator]]\nname = \"a0\"\ntype = \"soft\"\nmemory = \"1GiB\"\n"

// Debian's ffmpeg scales pictures as the textbook does: every format, algorithm and direction.
func TestFFmpegScales(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneAccelerator)
	for _, format := range []string{"yuv420p", "nv12", "yuv444p"} {
		for _, algorithm := range []string{"nearest", "bilinear", "bicubic", "lanczos"} {
			for _, size := range [][4]int{{322, 178, 640, 360}, {640, 360, 214, 122}} {
				s := scaling{format, algorithm, size[0], size[1], size[2], size[3]}
				t.Run(fmt.Sprintf("%s/%s/%dx%d-%dx%d", format, algorithm, s.w, s.h, s.outW, s.outH), func(t *testing.T) {
					cmd, out := s.command(t, h, "video")
					succeed(t, cmd)
					s.check(t, out)
				})
			}
		}
	}
}

// Two ffmpegs share the accelerator without affecting each other.
func TestTwoFFmpegs(t *testing.T) {
	h := startHost(t, oneAccelerator)
	runs := []scaling{{"yuv420p", "lanczos", 640, 360, 320, 180}, {"nv12", "bilinear", 320, 180, 640, 360}}
	var cmds []*exec.Cmd
	var outs []string
	var said [2]bytes.Buffer
	for i, s := range runs {
		cmd, out := s.command(t, h, fmt.Sprintf("video%d", i))
		cmd.Stderr = &said[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, &said[i])
		}
		runs[i].check(t, outs[i])
	}
}
