package vm

import (
	"path/filepath"

	"pegasus/test/image"
)

// ffmpegDisk makes a disk with the host's ffmpeg and all libraries that it needs, which are
// too large for an image in memory; or returns the disk that was made before.
func ffmpegDisk(build string) (string, error) {
	const program = "/usr/bin/ffmpeg"
	c := image.NewContents()
	c.Add("/bin/ffmpeg", program)
	if err := c.AddNeeds(); err != nil {
		return "", err
	}
	return c.Disk(filepath.Join(build, "vm"), "ffmpeg")
}
