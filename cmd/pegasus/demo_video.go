package main

import (
	"fmt"
	"os"
	"time"
)

// withVideo runs ffmpeg, which scales a generated clip, in a fourth domain, while the three continue under
// AccC.
func (d *demonstration) withVideo() error {
	if d.ffmpeg == "" {
		return nil
	}
	s, err := d.openStage("accc")
	if err != nil {
		return err
	}
	defer s.close()
	const atMost = time.Hour // they are ended when the clip is done
	if err := s.startAll(atMost); err != nil {
		return err
	}
	os.Remove(d.frame)
	d.say("ffmpeg scales a clip of 25 frames beside them\n")
	begin := time.Now()
	video, err := s.start(demoVideo.name, d.ffmpeg, "-v", "error", "-nostdin", "-y",
		"-init_hw_device", "cuda=gpu", "-filter_hw_device", "gpu",
		"-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25:duration=1",
		"-vf", "format=yuv420p,hwupload_cuda,scale_cuda=320:180:interp_algo=lanczos,hwdownload,format=yuv420p",
		"-update", "1", d.frame)
	if err != nil {
		return err
	}
	live := newLive(d, "accc", append(demoDomains[:len(demoDomains):len(demoDomains)], demoVideo))
	defer live.end()
	for {
		select {
		case err := <-video.done:
			if err != nil {
				return err
			}
			if _, err := os.Stat(d.frame); err != nil {
				return fmt.Errorf("ffmpeg left no picture: %w", err)
			}
			d.say("25 frames in %v\n", time.Since(begin).Round(10*time.Millisecond))
			return nil
		case <-time.After(liveEvery):
		case <-d.ctx.Done():
			return d.ctx.Err()
		}
		all, err := s.domains()
		if err != nil {
			return err
		}
		live.draw(all)
	}
}
