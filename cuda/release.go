package cuda

import (
	"regexp"
	"strconv"
)

// release is NVIDIA's first driver with a CUDA version. releases are sorted, oldest first.
type release struct {
	cuda   uint32 // 1000*major + 10*minor
	driver string
}

var (
	cudaText   = regexp.MustCompile(`^([0-9]{1,2})\.([0-9])$`)
	driverText = regexp.MustCompile(`^([0-9]{1,3})\.[0-9]{1,3}(\.[0-9]{1,3})?$`)
)

// ReportedVersions returns the CUDA and driver versions that are reported to a guest's program, like
// guest/libcuda/core/release.c: the values of the variables PEGASUS_CUDA and PEGASUS_DRIVER, by default the host's
// CUDA and the first driver that had it.
func ReportedVersions(host uint32, getenv func(string) string) (version uint32, driver string) {
	version = host
	if m := driverText.FindStringSubmatch(getenv("PEGASUS_DRIVER")); m != nil {
		branch, _ := strconv.Atoi(m[1])
		for _, r := range releases {
			if of, _ := strconv.Atoi(r.driver[:3]); of <= branch {
				version, driver = r.cuda, m[0]
			}
		}
	}
	if m := cudaText.FindStringSubmatch(getenv("PEGASUS_CUDA")); m != nil {
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		if v := uint32(1000*major + 10*minor); v >= releases[0].cuda && v <= releases[len(releases)-1].cuda {
			version = v
		}
	}
	if driver != "" {
		return version, driver
	}
	driver = releases[0].driver
	for _, r := range releases {
		if r.cuda <= version {
			driver = r.driver
		}
	}
	return version, driver
}
