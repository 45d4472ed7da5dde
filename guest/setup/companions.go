package setup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Companion is a library that comes with NVIDIA's driver or toolkit and not with Pegasus.
type Companion struct {
	Name    string // name of the check
	Library string // without the version after .so
	For     string // which programs load it
	Says    string // the programs' error message without it
	Instead string // the remedy
	Usable  bool   // NVIDIA's own works with Pegasus, since it needs no driver
}

// Companions returns all of them. docs/programs.md has the same facts, and a test compares the two.
func Companions() []Companion {
	const codecs = "use a software codec, such as libx264 and h264; scaling and other CUDA filters run"
	return []Companion{
		{Name: "decoder", Library: "libnvcuvid.so", For: "NVDEC: ffmpeg's *_cuvid and -hwaccel cuda, GStreamer's nvcodec", Says: "Cannot load libnvcuvid.so.1", Instead: codecs},
		{Name: "encoder", Library: "libnvidia-encode.so", For: "NVENC: ffmpeg's *_nvenc, GStreamer's nvcodec", Says: "Cannot load libnvidia-encode.so.1", Instead: codecs},
		{Name: "compiler", Library: "libnvrtc.so", For: "NVRTC: hashcat, CuPy, GStreamer's cudaconvert", Says: "missing the OpenCL, CUDA or HIP runtime",
			Instead: "install NVIDIA's NVRTC, of CUDA 12.4 or older: it needs no driver", Usable: true},
		{Name: "nvvm", Library: "libnvvm.so", For: "kernels that Numba compiles", Says: "libNVVM cannot be found",
			Instead: "install NVIDIA's NVVM, of CUDA 12.4 or older: it needs no driver", Usable: true},
	}
}

// Find returns the library's path in searchPath, in the form of LD_LIBRARY_PATH, or in the directories of loaders and
// toolkits; or "".
func (c Companion) Find(root, searchPath string) string {
	dirs := append(filepath.SplitList(searchPath), usualDirs...)
	dirs = append(dirs, "/usr/local/cuda/lib64", "/usr/local/cuda/nvvm/lib64", "/usr/lib/nvidia-cuda-toolkit/libdevice")
	for _, dir := range dirs {
		found, _ := filepath.Glob(filepath.Join(root, dir, c.Library+"*"))
		if len(found) > 0 {
			return slices.Min(found)
		}
	}
	return ""
}

// Finding describes the state of the library, and the remedy.
func (c Companion) Finding(path string) (detail, fix string) {
	switch {
	case path != "" && c.Usable:
		return fmt.Sprintf("%s, for %s", path, c.For), ""
	case path != "":
		return fmt.Sprintf("%s needs NVIDIA's driver, and fails with Pegasus (%s)", path, c.For), c.Instead
	}
	return fmt.Sprintf("Pegasus has no %s (%s): programs report %q", strings.TrimSuffix(c.Library, ".so"), c.For, c.Says), c.Instead
}
