package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane"
)

// startRounds is the number of first starts; the median counts.
const startRounds = 7

// firstLaunches measures the time of a program's first launch up to its result, on little data, beside later
// launches: the kernel is compiled at the first.
func firstLaunches(ctx context.Context, stderr io.Writer) (all []Figure, err error) {
	h, err := newHouse()
	if err != nil {
		return nil, err
	}
	defer h.close()
	for _, program := range [][2]string{{"blackscholes", "256"}, {"matmul", "16"}, {"walsh", "256"}, {"reduction", "256"}, {"histogram", "256"}, {"nbody", "256"}} {
		name, size := program[0], program[1]
		var first, later []time.Duration
		for range startRounds {
			one, err := h.round(ctx, stderr, name, "--size", size, "--warmup", "0", "--iterations", "1")
			if err != nil {
				return nil, err
			}
			many, err := h.round(ctx, stderr, name, "--size", size, "--iterations", "9")
			if err != nil {
				return nil, err
			}
			first, later = append(first, one), append(later, many)
		}
		all = append(all, beside("first launch, "+name, median(first), median(later)))
	}
	return all, nil
}

// round returns the median time of a benchmark program's rounds.
func (h *house) round(ctx context.Context, stderr io.Writer, name string, args ...string) (time.Duration, error) {
	text, err := h.guest(ctx, stderr, nil, built("bench/"+name), append(args, "--json")...).Output()
	if err != nil {
		return 0, err
	}
	var report struct {
		Median float64 `json:"round_p50_ns"`
	}
	err = json.Unmarshal(text, &report)
	return time.Duration(report.Median), err
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// largeModule measures the time from the text of libavfilter's largest PTX module until its first kernel is
// compiled.
func largeModule(context.Context, io.Writer) ([]Figure, error) {
	text, err := scaleModule()
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range startRounds {
		t, err := processorTime(func() error { return ready(text) })
		if err != nil {
			return nil, err
		}
		took = append(took, t)
	}
	return []Figure{{Name: "vf_scale_cuda's module, ready", Value: median(took).Seconds() * 1e3, Unit: "ms"}}, nil
}

func ready(text []byte) error {
	m, err := ptx.Parse(text)
	if err != nil {
		return err
	}
	image, err := lane.Load(m, func(size, _ uint64) (uint64, []byte, error) { return 1 << 40, make([]byte, size), nil })
	if err != nil {
		return err
	}
	k, err := image.Kernel("Subsample_Bilinear_nv12_nv12")
	if err != nil {
		return err
	}
	return k.Compile()
}

// scaleModule returns the PTX of vf_scale_cuda, which libavfilter contains in compressed form.
func scaleModule() ([]byte, error) {
	found, _ := filepath.Glob("/usr/lib/*/libavfilter.so.[0-9]")
	if len(found) == 0 {
		return nil, errors.New("there is no libavfilter: make deps installs ffmpeg")
	}
	library, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	magic := []byte{0x1f, 0x8b, 8}
	for i := bytes.Index(library, magic); i >= 0; i = bytes.Index(library, magic) {
		library = library[i:]
		if z, err := gzip.NewReader(bytes.NewReader(library)); err == nil {
			z.Multistream(false)
			if text, err := io.ReadAll(z); err == nil && bytes.Contains(text, []byte("Subsample_Bilinear_nv12_nv12")) {
				return text, nil
			}
		}
		library = library[1:]
	}
	return nil, fmt.Errorf("%s has no scale_cuda", found[0])
}

// Numbers of frames for the filter; the difference counts, which excludes ffmpeg's start.
const fewFrames, manyFrames = 5, 35

// videoFilter measures the time of a frame in ffmpeg's scale_cuda on one processor, including the copies to
// the device and back.
func videoFilter(ctx context.Context, stderr io.Writer) (all []Figure, err error) {
	h, err := newHouse()
	if err != nil {
		return nil, err
	}
	defer h.close()
	err = onOneProcessor(func() error {
		for _, size := range [][2]string{{"1920x1080", "1280x720"}, {"1280x720", "1920x1080"}} {
			var took [2]time.Duration
			for i, frames := range []int{fewFrames, manyFrames} {
				start := time.Now()
				if err := h.scale(ctx, stderr, size[0], size[1], frames).Run(); err != nil {
					return err
				}
				took[i] = time.Since(start)
			}
			each := (took[1] - took[0]) / (manyFrames - fewFrames)
			all = append(all, Figure{Name: fmt.Sprintf("scale_cuda, bilinear, %s to %s", size[0], size[1]), Value: each.Seconds() * 1e3, Unit: "ms"})
		}
		return nil
	})
	return all, err
}

// scale returns ffmpeg as a guest that scales frames of one size to another.
func (h *house) scale(ctx context.Context, stderr io.Writer, from, to string, frames int) *exec.Cmd {
	w, height, _ := strings.Cut(to, "x")
	return h.guest(ctx, stderr, nil, "ffmpeg", "-v", "error", "-nostdin",
		"-init_hw_device", "cuda=gpu", "-filter_hw_device", "gpu", "-f", "lavfi", "-i", "color=c=red:s="+from, "-frames:v", fmt.Sprint(frames),
		"-vf", fmt.Sprintf("format=nv12,hwupload,scale_cuda=%s:%s:interp_algo=bilinear,hwdownload,format=nv12", w, height), "-f", "null", "-")
}
