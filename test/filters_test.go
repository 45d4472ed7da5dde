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

// clip is a raw video.
type clip struct {
	format string
	w, h   int
	frames [][]plane
}

// moving returns a clip of pictures that differ from frame to frame.
func moving(format string, w, h, frames int) clip {
	c := clip{format: format, w: w, h: h}
	for f := range frames {
		c.frames = append(c.frames, picture(format, w, h, f))
	}
	return c
}

// ffmpegArgs returns the arguments that run a filter graph over clips; the files go to dir.
func ffmpegArgs(t *testing.T, dir, graph, out string, clips []clip) []string {
	t.Helper()
	args := []string{"-v", "error", "-nostdin", "-y"}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Fatal("ffmpeg is not installed; `make deps` installs it")
	}
	for i, c := range clips {
		var raw []byte
		for _, f := range c.frames {
			raw = append(raw, encodePlanes(f)...)
		}
		in := filepath.Join(dir, fmt.Sprintf("in%d.raw", i))
		if err := os.WriteFile(in, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-f", "rawvideo", "-pix_fmt", c.format, "-s", fmt.Sprintf("%dx%d", c.w, c.h), "-i", in)
	}
	return append(args, "-filter_complex", graph, "-vsync", "passthrough", "-f", "rawvideo", out)
}

// decode splits raw video into the planes of its frames.
func decode(t *testing.T, path, format string, w, h int) (frames [][]plane) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(raw) > 0 {
		ps := planes(format, w, h)
		for i := range ps {
			if len(raw) < len(ps[i].pix) {
				t.Fatalf("frame %d is cut short", len(frames))
			}
			raw = raw[copy(ps[i].pix, raw):]
		}
		frames = append(frames, ps)
	}
	return frames
}

// filtered returns the output, for some clips, of a graph of CUDA filters that runs as a guest; the graph ends at [out]
// or at its end.
func filtered(t *testing.T, h *host, graph, format string, clips ...clip) [][]plane {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out.raw")
	device := []string{"-init_hw_device", "cuda=gpu", "-filter_hw_device", "gpu"}
	if !strings.Contains(graph, "[out]") {
		graph += "[out]"
	}
	graph += ";[out]hwdownload,format=" + format
	succeed(t, h.guest("video", "ffmpeg", append(device, ffmpegArgs(t, dir, graph, out, clips)...)...))
	return decode(t, out, format, clips[0].w, clips[0].h)
}

// filteredByCPU returns the output of ffmpeg's own CPU filters for some clips.
func filteredByCPU(t *testing.T, graph string, clips ...clip) [][]plane {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out.raw")
	succeed(t, exec.Command("ffmpeg", ffmpegArgs(t, dir, graph, out, clips)...))
	return decode(t, out, clips[0].format, clips[0].w, clips[0].h)
}

// same compares two planes.
func same(a, b plane) error {
	for i := range b.pix {
		if a.pix[i] != b.pix[i] {
			row := a.w * a.channels
			return fmt.Errorf("sample %d of row %d is %d, want %d", i%row, i/row, a.pix[i], b.pix[i])
		}
	}
	return nil
}

// fields is a frame with its neighbours in time, and the rows of it that are kept.
type fields struct {
	prev, cur, next plane
	keep            int // 0: even rows
	second          bool
	spatial         bool // no larger changes than those around a sample
}

// deinterlaced computes the missing rows by the algorithm in vf_yadif_cuda's comment. It differs slightly from the
// CPU's yadif: this one doesn't halve the difference between the fields before and after.
func (f *fields) deinterlaced() plane {
	out := newPlane(f.cur.w, f.cur.h, 1)
	for y := range out.h {
		for x := range out.w {
			v := int(f.cur.at(x, y, 0))
			if y%2 != f.keep {
				v = f.between(x, y)
			}
			out.pix[y*out.w+x] = byte(v)
		}
	}
	return out
}

func (f *fields) between(x, y int) int {
	at := func(p plane, x, y int) int { return int(p.at(x, y, 0)) }
	early, late := f.prev, f.cur // the frames with the rows nearest in time
	if f.second {
		early, late = f.cur, f.next
	}
	above, below := at(f.cur, x, y-1), at(f.cur, x, y+1)
	mean := (at(early, x, y) + at(late, x, y)) / 2
	before := (abs(at(f.prev, x, y-1)-above) + abs(at(f.prev, x, y+1)-below)) / 2
	after := (abs(at(f.next, x, y-1)-above) + abs(at(f.next, x, y+1)-below)) / 2
	most := max(abs(at(early, x, y)-at(late, x, y)), before, after)
	if f.spatial {
		higher := (at(early, x, y-2) + at(late, x, y-2)) / 2
		lower := (at(early, x, y+2) + at(late, x, y+2)) / 2
		most = max(most, min(mean-below, mean-above, max(higher-above, lower-below)),
			-max(mean-below, mean-above, min(higher-above, lower-below)))
	}
	return max(min(f.along(x, y), mean+most), mean-most)
}

// along returns the mean of the rows above and below in the direction of their greatest similarity.
func (f *fields) along(x, y int) int {
	above := func(d int) int { return int(f.cur.at(x+d, y-1, 0)) }
	below := func(d int) int { return int(f.cur.at(x+d, y+1, 0)) }
	score := func(d int) (sum int) {
		for i := -1; i <= 1; i++ {
			sum += abs(above(d+i) - below(i-d))
		}
		return sum
	}
	best, least := 0, score(0)
	for _, side := range []int{-1, 1} {
		for d := side; abs(d) <= 2 && score(d) < least; d += side {
			best, least = d, score(d)
		}
	}
	return (above(best) + below(-best)) / 2
}

func abs(v int) int { return max(v, -v) }

func TestFFmpegDeinterlaces(t *testing.T) {
	h := startHost(t, oneAccelerator)
	for _, c := range []struct {
		mode    string
		bottom  bool // the lower field is first
		each    bool // a frame for each field
		spatial bool
	}{{"send_frame", false, false, true}, {"send_field", true, true, true}, {"send_frame_nospatial", false, false, false}} {
		t.Run(c.mode, func(t *testing.T) {
			from := moving("yuv420p", 162, 90, 4)
			first, parity := 0, "tff"
			if c.bottom {
				first, parity = 1, "bff"
			}
			got := filtered(t, h, "[0]hwupload_cuda,yadif_cuda=mode="+c.mode+":parity="+parity, from.format, from)
			n := 0
			for f := range from.frames {
				for field := range 2 {
					if field == 1 && !c.each {
						break
					}
					if n >= len(got) {
						t.Fatalf("%d frames are too few", len(got))
					}
					for i := range from.frames[f] {
						of := fields{from.frames[max(f-1, 0)][i], from.frames[f][i], from.frames[min(f+1, len(from.frames)-1)][i],
							first ^ field, field == 1, c.spatial}
						if err := same(got[n][i], of.deinterlaced()); err != nil {
							t.Errorf("frame %d, plane %d: %v", n, i, err)
						}
					}
					n++
				}
			}
			if n != len(got) {
				t.Errorf("%d frames, want %d", len(got), n)
			}
		})
	}
}

// overlaid returns one plane over another, weighted by alpha out of 255; a nil alpha is opaque.
func overlaid(below, above plane, alpha *plane, x0, y0, step int) plane {
	out := newPlane(below.w, below.h, below.channels)
	copy(out.pix, below.pix)
	for y := range above.h {
		for x := range above.w {
			if x0+x >= below.w || y0+y >= below.h {
				continue
			}
			for c := range above.channels {
				a := 1.0
				if alpha != nil {
					a = alpha.at(x*step, y*step, 0) / 255
				}
				v := a*above.at(x, y, c) + (1-a)*below.at(x0+x, y0+y, c)
				out.pix[((y0+y)*below.w+x0+x)*below.channels+c] = byte(v)
			}
		}
	}
	return out
}

func TestFFmpegOverlays(t *testing.T) {
	const x0, y0 = 38, 14
	h := startHost(t, oneAccelerator)
	graph := fmt.Sprintf("[0]hwupload_cuda[a];[1]hwupload_cuda[b];[a][b]overlay_cuda=x=%d:y=%d", x0, y0)
	for _, format := range []string{"yuv420p", "nv12"} {
		t.Run(format, func(t *testing.T) {
			below, above := moving(format, 160, 90, 2), moving(format, 64, 48, 2)
			got := filtered(t, h, graph, format, below, above)
			for f := range below.frames {
				for i := range below.frames[f] {
					step := 1 + min(i, 1)
					want := overlaid(below.frames[f][i], above.frames[f][i], nil, x0/step, y0/step, step)
					if err := same(got[f][i], want); err != nil {
						t.Errorf("frame %d, plane %d: %v", f, i, err)
					}
				}
			}
			if format == "nv12" { // unsupported by the CPU's overlay
				return
			}
			cpu := filteredByCPU(t, fmt.Sprintf("[0][1]overlay=x=%d:y=%d", x0, y0), below, above)
			for f := range cpu {
				if !bytes.Equal(encodePlanes(got[f]), encodePlanes(cpu[f])) {
					t.Errorf("frame %d differs from the CPU's", f)
				}
			}
		})
	}
	t.Run("alpha", func(t *testing.T) {
		below, above := moving("yuv420p", 160, 90, 2), moving("yuva420p", 64, 48, 2)
		got := filtered(t, h, graph, "yuv420p", below, above)
		for f := range below.frames {
			for i := range below.frames[f] {
				step := 1 + min(i, 1)
				want := overlaid(below.frames[f][i], above.frames[f][i], &above.frames[f][3], x0/step, y0/step, step)
				like(t, f, i, got[f][i], want)
			}
		}
	})
}

// like fails the test unless two planes are alike.
func like(t *testing.T, frame, i int, got, want plane) {
	t.Helper()
	db := psnr(got.pix, want.pix)
	t.Logf("frame %d plane %d: %.1f dB", frame, i, db)
	if db < 45 {
		t.Errorf("frame %d, plane %d: %.1f dB against the reference, want at least 45", frame, i, db)
	}
}

// keyed makes pixels of a colour transparent, in proportion to the nearness of the chroma around them. The filter reads
// between samples, so each of its values is a mean of four.
func keyed(y, u, v plane, keyU, keyV, similarity, blend float64) (luma, alpha plane) {
	luma, alpha = newPlane(y.w, y.h, 1), newPlane(y.w, y.h, 1)
	for j := range y.h {
		for i := range y.w {
			luma.pix[j*y.w+i] = byte(y.linear(float64(i), float64(j), 0))
			alpha.pix[j*y.w+i] = byte(255 * min(max((distance(u, v, i/2, j/2, keyU, keyV)-similarity)/blend, 0), 1))
		}
	}
	return luma, alpha
}

// distance returns the mean distance of the chroma around a sample from a colour.
func distance(u, v plane, x, y int, keyU, keyV float64) float64 {
	sum, n := 0.0, 0.0
	for j := max(y-1, 0); j <= min(y+1, u.h-1); j++ {
		for i := max(x-1, 0); i <= min(x+1, u.w-1); i++ {
			du, dv := u.linear(float64(i), float64(j), 0)-keyU, v.linear(float64(i), float64(j), 0)-keyV
			sum += math.Sqrt((du*du + dv*dv) / (2 * 255 * 255))
			n++
		}
	}
	return sum / n
}

func TestFFmpegKeysColours(t *testing.T) {
	h := startHost(t, oneAccelerator)
	c := moving("yuv420p", 160, 90, 2)
	got := filtered(t, h, "[0]hwupload_cuda,chromakey_cuda=color=0x00785a:similarity=0.05:blend=0.2:yuv=1", "yuva420p", c)
	for f, from := range c.frames {
		luma, alpha := keyed(from[0], from[1], from[2], 0x78, 0x5a, 0.05, 0.2)
		like(t, f, 0, got[f][0], luma)
		like(t, f, 3, got[f][3], alpha)
		clear, opaque := bytes.Count(alpha.pix, []byte{0}), bytes.Count(alpha.pix, []byte{255})
		if clear == 0 || opaque == 0 || clear+opaque > len(alpha.pix)*9/10 {
			t.Errorf("the clip tries too little: %d of %d places are clear, %d opaque", clear, len(alpha.pix), opaque)
		}
	}
}

// representative returns the frame with the histogram nearest to the mean of all, and by how much it is nearer than the
// next.
func representative(frames [][]plane) (best int, margin float64) {
	hist := make([][768]float64, len(frames))
	var mean [768]float64
	for f, ps := range frames {
		for i, p := range ps {
			weight := float64(len(ps[0].pix) / len(p.pix))
			for y := range p.h {
				for x := range p.w {
					hist[f][256*i+int(p.linear(float64(x), float64(y), 0)+.5)] += weight
				}
			}
		}
		for i, n := range hist[f] {
			mean[i] += n / float64(len(frames))
		}
	}
	least, second := math.Inf(1), math.Inf(1)
	for f := range hist {
		sum := 0.0
		for i, n := range hist[f] {
			sum += (n - mean[i]) * (n - mean[i])
		}
		switch {
		case sum < least:
			best, least, second = f, sum, least
		case sum < second:
			second = sum
		}
	}
	return best, second / least
}

func TestFFmpegPicksThumbnails(t *testing.T) {
	h := startHost(t, oneAccelerator)
	for _, first := range []int{0, 5, 11} {
		c := clip{format: "yuv420p", w: 160, h: 90}
		for f := range 6 {
			c.frames = append(c.frames, picture(c.format, c.w, c.h, first+f*f))
		}
		want, margin := representative(c.frames)
		if margin < 1.005 {
			t.Fatalf("clip %d: no frame is clearly the most typical (%.4f)", first, margin)
		}
		// The filter uses the device as it ends, without a reference to it. Since it is named first, it is freed while
		// others hold one.
		got := filtered(t, h, "[up]thumbnail_cuda=n=6[out];[0]hwupload_cuda[up]", c.format, c)
		if len(got) != 1 {
			t.Fatalf("%d frames, want one", len(got))
		}
		if !bytes.Equal(encodePlanes(got[0]), encodePlanes(c.frames[want])) {
			t.Errorf("clip %d: the thumbnail isn't frame %d", first, want)
		}
	}
}
