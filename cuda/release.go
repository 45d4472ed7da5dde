package cuda

import (
	"fmt"
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

// The variables by which a program chooses the versions that it receives.
const (
	cudaVariable   = "PEGASUS_CUDA"
	driverVariable = "PEGASUS_DRIVER"
)

// cudaNamed returns the CUDA version of a text such as 12.4; 0 for any other text.
func cudaNamed(text string) uint32 {
	m := cudaText.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if v := uint32(1000*major + 10*minor); v >= releases[0].cuda && v <= releases[len(releases)-1].cuda {
		return v
	}
	return 0
}

// cudaOf returns the newest CUDA of a driver's branch; 0 for a text that is no driver version, or an older driver.
func cudaOf(driver string) (version uint32) {
	m := driverText.FindStringSubmatch(driver)
	if m == nil {
		return 0
	}
	branch, _ := strconv.Atoi(m[1])
	for _, r := range releases {
		if of, _ := strconv.Atoi(r.driver[:3]); of <= branch {
			version = r.cuda
		}
	}
	return version
}

// Ignored returns a line for each of these variables with a value that has no effect, in the words of the guest's library.
func Ignored(getenv func(string) string) (lines []string) {
	for _, v := range []struct {
		name, want string
		version    func(string) uint32
	}{
		{cudaVariable, "a CUDA from 11.0 to 13.0", cudaNamed},
		{driverVariable, "a driver from 450 on, such as 535.54.03", cudaOf},
	} {
		if value := getenv(v.name); value != "" && v.version(value) == 0 {
			lines = append(lines, fmt.Sprintf("pegasus: %s=%.128s: want %s; ignored", v.name, value, v.want))
		}
	}
	return lines
}

// ReportedVersions returns the CUDA and driver versions that are reported to a guest's program, like
// guest/libcuda/core/release.c: the values of the variables PEGASUS_CUDA and PEGASUS_DRIVER, by default the host's
// CUDA and the first driver that had it.
func ReportedVersions(host uint32, getenv func(string) string) (version uint32, driver string) {
	version = host
	if of := cudaOf(getenv(driverVariable)); of != 0 {
		version, driver = of, getenv(driverVariable)
	}
	if v := cudaNamed(getenv(cudaVariable)); v != 0 {
		version = v
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
