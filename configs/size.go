package configs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is an amount of memory in bytes, never negative.
type Size int64

// Units of sizes.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var units = []struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// ParseSize reads "512MiB", "1.5GiB", "4096B" or "4096".
func ParseSize(s string) (Size, error) {
	number, unit := strings.TrimSpace(s), Size(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/int64(unit) {
			return 0, fmt.Errorf("size %q is out of range", s)
		}
		return Size(n) * unit, nil
	}
	return parseFraction(s, number, unit)
}

// parseFraction parses plain decimals such as 1.5, and only those that result in whole bytes.
func parseFraction(s, number string, unit Size) (Size, error) {
	if strings.Trim(number, "0123456789.") != "" || strings.Count(number, ".") != 1 {
		return 0, fmt.Errorf("size %q isn't a number with one of B, KiB, MiB, GiB, TiB", s)
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("size %q isn't a number with one of B, KiB, MiB, GiB, TiB", s)
	}
	f *= float64(unit)
	if f >= math.MaxInt64 || f != math.Trunc(f) {
		return 0, fmt.Errorf("size %q isn't a whole number of bytes", s)
	}
	return Size(f), nil
}

// String writes the size with the largest unit that keeps it whole.
func (s Size) String() string {
	for _, u := range units {
		if s != 0 && s%u.size == 0 {
			return fmt.Sprintf("%d%s", int64(s/u.size), u.name)
		}
	}
	return "0B"
}
